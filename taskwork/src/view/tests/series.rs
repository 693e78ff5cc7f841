//! The values of a cluster over time.

use super::*;

#[test]
fn outage_adds_no_point_to_the_series() {
    let mut view = with_jobs(View::default(), 0..1);
    let points = |view: &View| view.job("j-0000000000").unwrap().series.points.len();
    assert_eq!(points(&view), 1);
    view.apply(&Event::of(1_500, "", Content::Lost));
    view.apply(&Event::tick(2_000));
    view.apply(&Event::tick(60_000));
    assert_eq!(points(&view), 1);
    view.apply(&Event::of(60_500, "", Content::Found));
    view.apply(&Event::tick(61_000));
    assert_eq!(points(&view), 1, "no node has reported since");
    view.apply(&Event::tick(70_500));
    assert_eq!(points(&view), 2);
    let outages: Vec<_> = view.moments().map(|moment| (moment.at_ms, moment.what)).collect();
    assert_eq!(
        outages[outages.len() - 2..],
        [(1_500, MomentKind::ServersAway), (60_500, MomentKind::ServersBack)]
    );
}

#[test]
fn workers_over_time_are_those_of_all_members_and_of_each() {
    let mut view = View::default();
    let mut apply = |at_ms, path: &str, content| view.apply(&Event::of(at_ms, path, content));
    apply(1_000, "members/n1", member("n1"));
    apply(1_000, "members/n2", member("n2"));
    apply(1_000, "jobs/j-0000000001", job(JobState::Running, 2));
    apply(1_000, "jobs/j-0000000001/figures/n1", content(&report(1, false)));
    view.apply(&Event::tick(1_000));
    assert_eq!(view.snapshot().workers.points, [], "not everything was read");
    view.apply(&Event::of(1_500, "", Content::Found));
    view.apply(&Event::tick(2_000));
    let before = view.seq();
    view.apply(&Event::of(2_500, "members/n2", Content::Gone));
    view.apply(&Event::tick(3_000));
    let seen = |series: &Series| {
        let points = series.points.iter();
        points.map(|point| (point.at_ms, point.workers.last, point.busy.last)).collect::<Vec<_>>()
    };
    let workers = fixtures::member("n1").workers;
    let snapshot = view.snapshot();
    assert_eq!(seen(&snapshot.workers), [(2_000, 2 * workers, 1), (3_000, workers, 1)]);
    assert_eq!(seen(view.workers_of("n1").unwrap()), [(2_000, workers, 1), (3_000, workers, 1)]);
    assert_eq!(view.workers_of("n2"), None, "it has gone");
    assert_eq!(
        seen(&Series { step_ms: 1, points: view.delta_since(before).unwrap().workers.unwrap().points }),
        [(3_000, workers, 1)]
    );
    view.apply(&Event::of(3_500, "", Content::Lost));
    view.apply(&Event::tick(4_000));
    assert_eq!(view.snapshot().workers.points.len(), 2, "an outage is no measurement");
}
