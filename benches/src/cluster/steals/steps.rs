//! The steps of steals in the logs of a thief and its victim.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// The stages between the steps of a steal, in order.
pub(super) const STAGES: [&str; 9] = [
    "thief, until the request is handed to its connection",
    "the request on its way",
    "victim, until its driver takes the request",
    "victim, until a worker has split its task",
    "victim, until its driver sends the task",
    "victim, until the task is handed to its connection",
    "the task on its way",
    "thief, until its driver takes the task",
    "thief, until a worker begins the task",
];

/// A steal.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Steal {
    /// The duration of each of the [`STAGES`], in microseconds; `None` if the stage was skipped: if a task
    /// was queued at the victim, it need not be split.
    pub(super) stages_us: [Option<f64>; STAGES.len()],
}

impl Steal {
    pub(super) fn total_us(&self) -> f64 {
        self.stages_us.iter().flatten().sum()
    }
}

/// An event in a log.
#[derive(Debug)]
struct Event {
    at_us: f64,
    step: String,
    request: Option<u64>,
}

/// Finds the steals of a thief in its log and in the log of its only possible victim.
pub(super) fn steals(thief: &str, victim: &str) -> Result<Vec<Steal>> {
    let (thief, victim) = (events(thief)?, events(victim)?);
    let asked = thief.iter().enumerate().filter(|(_, event)| event.step == "asked");
    Ok(asked.filter_map(|(place, _)| steal(&thief, place, &victim)).collect())
}

fn events(log: &str) -> Result<Vec<Event>> {
    let lines = log.lines().filter(|line| line.contains("\"taskwork::steals\""));
    lines.map(|line| event(line).with_context(|| format!("in the log: {line}"))).collect()
}

fn event(line: &str) -> Result<Event> {
    let line: Value = serde_json::from_str(line)?;
    let time = line["timestamp"].as_str().context("no time")?;
    let at: SystemTime = humantime::parse_rfc3339(time)?;
    let fields = &line["fields"];
    Ok(Event {
        at_us: at.duration_since(UNIX_EPOCH)?.as_secs_f64() * 1e6,
        step: fields["step"].as_str().context("no step")?.to_owned(),
        request: fields["request"].as_u64(),
    })
}

/// Follows the request at this place in the thief's log; `None` if it was denied.
fn steal(thief: &[Event], place: usize, victim: &[Event]) -> Option<Steal> {
    let Event { at_us, request, .. } = thief[place];
    // A node has one open request at a time. The numbers restart with each job.
    let asks_again = thief[place + 1..].iter().position(|e| e.step == "asked");
    let thief = asks_again.map_or(thief, |more| &thief[..=place + more]);
    let from = |events: &[Event], from: usize, is: &dyn Fn(&Event) -> bool| {
        Some(from + events[from..].iter().position(is)?)
    };
    let after = |events: &[Event], place, step| from(events, place, &|e| e.step == step);
    let before = |events: &[Event], to: usize, step| events[..to].iter().rposition(|e| e.step == step);

    let came = from(thief, place, &|e| e.step == "came" && e.request == request)?;
    let heard = from(victim, 0, &|e| e.step == "heard" && e.request == request && e.at_us >= at_us)?;
    let granted = from(victim, heard, &|e| e.step == "granted" && e.request == request)?;
    let split = after(&victim[..granted], heard, "split");
    let steps = [
        (thief, Some(place)),
        (thief, after(thief, place, "sent")),
        (victim, before(victim, heard, "arrived")),
        (victim, Some(heard)),
        (victim, split),
        (victim, Some(granted)),
        (victim, after(victim, granted, "sent")),
        (thief, before(thief, came, "arrived")),
        (thief, Some(came)),
        (thief, after(thief, came, "begun")),
    ];
    let mut stages_us = [None; STAGES.len()];
    let mut last_us = thief[place].at_us;
    for ((events, step), stage) in steps.iter().skip(1).zip(&mut stages_us) {
        if let Some(step) = step {
            *stage = Some(events[*step].at_us - last_us);
            last_us = events[*step].at_us;
        }
    }
    Some(Steal { stages_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(us: u32, step: &str, request: Option<u64>) -> String {
        let request = request.map_or(String::new(), |request| format!(",\"request\":{request}"));
        format!(
            "{{\"timestamp\":\"2026-01-01T00:00:00.{us:06}Z\",\"level\":\"TRACE\",\"fields\":{{\"step\":\
             \"{step}\"{request}}},\"target\":\"taskwork::steals\"}}\n"
        )
    }

    #[test]
    fn steal_is_traced_through_both_logs() {
        let thief = [
            line(100, "asked", Some(1)),
            line(110, "sent", None),
            line(150, "asked", Some(2)),
            line(151, "sent", None),
            line(900, "arrived", None),
            line(920, "came", Some(2)),
            line(925, "begun", None),
        ];
        let victim = [
            "{\"timestamp\":\"2026-01-01T00:00:00.000001Z\",\"fields\":{},\"target\":\"taskwork\"}\n"
                .to_owned(),
            line(120, "arrived", None),
            line(130, "heard", Some(1)),
            line(200, "arrived", None),
            line(210, "heard", Some(2)),
            line(700, "split", None),
            line(760, "granted", Some(2)),
            line(780, "sent", None),
        ];
        let found = steals(&thief.concat(), &victim.concat()).unwrap();
        assert_eq!(found.len(), 1, "the first request was denied");
        let expected = [1.0, 49.0, 10.0, 490.0, 60.0, 20.0, 120.0, 20.0, 5.0].map(Some);
        let rounded = found[0].stages_us.map(|us| us.map(f64::round));
        assert_eq!(rounded, expected);
    }

    #[test]
    fn steal_of_queued_task_has_no_split() {
        let thief = [line(0, "asked", Some(1)), line(50, "came", Some(1))].concat();
        let victim = [line(10, "heard", Some(1)), line(30, "granted", Some(1))].concat();
        let found = steals(&thief, &victim).unwrap();
        assert_eq!(found[0].stages_us[3], None);
        assert!((found[0].total_us() - 50.0).abs() < 1.0);
    }
}
