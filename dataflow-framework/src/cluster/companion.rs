//! The companion of a job: an event at a time.

use std::{sync::Arc, time::Duration};

use taskwork::{CompanionContext, CompanionEvent, Refusal};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::station::Station;
use crate::node::Crew;

/// The time between two looks at what is to be sent again.
const LOOK: Duration = Duration::from_millis(50);

/// Runs until the node's work on the job is over.
pub(super) async fn run(mut cx: CompanionContext, station: Arc<Station>) -> Result<(), String> {
    let workers = cx.workers();
    let crew = Crew::start(&station.queue, workers)
        .map_err(|error| format!("no thread could be started: {error}"))?;
    station.starts(cx.messenger().clone(), cx.node(), workers);
    let begun = Instant::now();
    let now_ms = || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            event = cx.next() => match event {
                None => break,
                Some(CompanionEvent::Joined { node }) => station.joined(node),
                Some(CompanionEvent::Left { node }) => station.left(node),
                Some(CompanionEvent::Message { from, bytes }) => station.message(from, &bytes, now_ms()),
                Some(CompanionEvent::Rescue(rescue)) => station.leaves(rescue),
                Some(CompanionEvent::Refused { to, why: Refusal::Absent, .. }) => station.is_absent(to),
                // What was refused is sent again, like what was lost.
                Some(_) => {}
            },
            () = station.wake.notified() => {}
            _ = looks.tick() => {}
        }
        station.send_due(now_ms());
    }
    station.end();
    // A task that runs goes on to its end, and nobody waits for it.
    crew.leave();
    Ok(())
}
