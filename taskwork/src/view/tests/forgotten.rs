//! Jobs and nodes that the view forgets.

use super::*;

#[test]
fn nodes_of_jobs_over_long_ago_are_forgotten() {
    let mut view = View::default();
    view.apply(&Event::of(0, "members/n1", member("n1")));
    view.apply(&Event::tick(0));
    let mut followed = view.snapshot();
    for number in 0..200 {
        let job_path = format!("jobs/j-{number:010}");
        view.apply(&Event::of(1, &*job_path, job(JobState::Running, 2)));
        view.apply(&Event::of(1, format!("{job_path}/figures/n1"), content(&report(5, true))));
        view.apply(&Event::tick(number * 10_000));
        view.apply(&Event::of(1, &*job_path, job(JobState::Done, 2)));
        view.apply(&Event::tick(number * 10_000 + 5_000));
        followed.apply(view.delta_since(followed.seq).unwrap());
        assert_eq!(followed, view.snapshot());
    }
    let snapshot = view.snapshot();
    let with_nodes = snapshot.jobs.values().filter(|job| !job.nodes.is_empty()).count();
    assert_eq!((snapshot.jobs.len(), with_nodes), (200, 10));
    assert!(snapshot.jobs.values().all(|job| job.about.figures.worked == 5), "the sums stay");
    let with_series = snapshot.jobs.values().filter(|job| !job.series.points.is_empty()).count();
    assert_eq!(with_series, 50);
}

/// Completes jobs in one tick.
fn end(view: &mut View, numbers: Range<u64>) {
    for number in numbers {
        view.apply(&Event::of(1, path_of(number), job(JobState::Done, 2)));
    }
    let now_ms = view.snapshot().cluster.at_ms;
    view.apply(&Event::tick(now_ms + 1_000));
}

#[test]
fn kept_job_is_never_forgotten() {
    let first = "j-0000000000";
    for (kept, nodes) in [(None, 0), (Some(first.to_owned()), 1)] {
        let mut view = with_jobs(View::keeping(kept), 0..12);
        end(&mut view, 0..12);
        assert_eq!(view.job(first).unwrap().nodes.len(), nodes);
    }
}

#[test]
fn job_over_after_many_later_ones_is_shown_as_over() {
    let mut view = with_jobs(View::default(), 0..12);
    end(&mut view, 1..12);
    assert_eq!(view.job("j-0000000000").unwrap().about.stage, Stage::Running);
    end(&mut view, 0..1);
    let JobNow { about, nodes, .. } = view.job("j-0000000000").unwrap();
    assert_eq!((about.stage, about.figures.worked, nodes.len()), (Stage::Done, 5, 0));
    let last = view.moments().last().unwrap();
    assert_eq!((last.what, last.name.as_str()), (MomentKind::JobOver, "j-0000000000"));
}

#[test]
fn sums_of_forgotten_nodes_survive_another_read() {
    let mut view = with_jobs(View::default(), 0..12);
    end(&mut view, 0..12);
    end(&mut view, 0..12);
    let about = view.job("j-0000000000").unwrap().about;
    assert_eq!((about.stage, about.figures.worked, about.best), (Stage::Done, 5, Some(35.0)));
    assert!(about.reported && about.record.is_some());
    // A job that runs again is summed up again.
    view.apply(&Event::of(1, path_of(0), job(JobState::Running, 3)));
    view.apply(&Event::tick(9_000));
    let about = view.job("j-0000000000").unwrap().about;
    assert_eq!((about.stage, about.reported, about.figures.worked), (Stage::Running, false, 0));
}
