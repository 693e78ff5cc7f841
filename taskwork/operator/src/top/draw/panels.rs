//! The latest events of the cluster, and the load that its jobs put on ZooKeeper.

use ratatui::{
    layout::Rect,
    style::{Color, Style},
};
use taskwork::{
    report::Histogram,
    view::{Moment, MomentKind, Snapshot},
};

use super::Pen;
use crate::{
    events::happened,
    top::{
        state::{Source, State},
        text::{clock, duration, things, whole},
        warnings::lasted,
    },
};

pub(super) fn draw(pen: &mut Pen<'_>, place: Rect, state: &State) {
    let half = place.width / 2;
    let left = Rect { x: place.x + 1, width: half.saturating_sub(2), ..place };
    let right = Rect { x: place.x + half, width: place.width - half, ..place };
    let caption = pen.look.bold();
    let rows = usize::from(place.height.saturating_sub(1));

    let red = pen.look.colour(Color::Red);
    let latest = state.snapshot.moments.iter().rev().take(rows).map(|moment| {
        let style = if moment.what == MomentKind::Lost { red } else { Style::new() };
        (told(moment, &state.snapshot, state.now_ms()), style)
    });
    let mut lines: Vec<(String, Style)> = latest.collect();
    if lines.is_empty() {
        lines.push(("no events yet".to_owned(), Style::new()));
    }
    lines.insert(0, ("Latest".to_owned(), caption));
    pen.lines(left, lines);

    let costs = zookeeper(state).into_iter().map(|line| (line, Style::new()));
    pen.lines(right, [("ZooKeeper".to_owned(), caption)].into_iter().chain(costs));
}

/// Describes an event.
pub(in crate::top) fn told(moment: &Moment, snapshot: &Snapshot, now_ms: u64) -> String {
    let Moment { at_ms, what, name, .. } = moment;
    let at = clock(*at_ms, now_ms);
    let stage = || snapshot.jobs.get(name).map(|job| job.about.stage);
    let end = stage().filter(|stage| *what == MomentKind::JobOver && !stage.is_open());
    let end = end.map(|stage| format!(": {}", stage.text())).unwrap_or_default();
    format!("{at} {name} {}{end}", happened(*what))
}

/// Describes the state of ZooKeeper, and the load from the job.
pub(in crate::top) fn zookeeper(state: &State) -> Vec<String> {
    let (cluster, now_ms) = (&state.snapshot.cluster, state.now_ms());
    let mut lines = vec![match (cluster.silent_since_ms, &state.source) {
        (Some(since), Source::Cluster(_)) => {
            format!("silent since {}, for {}", clock(since, now_ms), lasted(since, now_ms))
        }
        (Some(since), Source::Record(_)) => format!("silent since {} at the end", clock(since, now_ms)),
        (None, _) if cluster.outages > 0 => format!("answers, after {}", things(cluster.outages, "outage")),
        (None, Source::Record(_)) => "answered until the end".to_owned(),
        (None, Source::Cluster(_)) => "answers".to_owned(),
    }];
    let job = state.job().and_then(|(_, job)| job);
    let Some(about) = job.map(|job| &job.about).filter(|about| about.reported) else {
        lines.push("no node has reported its requests".to_owned());
        return lines;
    };
    let requests = about.requests;
    let all = [requests.reads, requests.writes, requests.multis, requests.failed_multis];
    let all = all.into_iter().fold(0_u64, u64::saturating_add);
    lines.extend([
        format!("requests {}, reads {}", whole(all), whole(requests.reads)),
        format!("reads   {}", times(&about.latencies.reads)),
        format!("writes  {}", times(&about.latencies.writes)),
        format!(
            "transactions {}, {} retried",
            whole(about.figures.transactions),
            whole(about.figures.retries)
        ),
        format!("tasks recovered from lost nodes: {}", whole(about.figures.recovered)),
    ]);
    lines
}

fn times(times: &Histogram) -> String {
    let within = |share| times.quantile(share).map(|time| duration(time.as_secs_f64()));
    match (within(0.5), within(0.99)) {
        (Some(half), Some(most)) => format!("median {half}, p99 {most}"),
        _ => "none measured".to_owned(),
    }
}
