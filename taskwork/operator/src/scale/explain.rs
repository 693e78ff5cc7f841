//! The decisions of a controller and their reasons, formatted.

use serde_json::json;
use taskwork::Client;
use taskwork_cli::{Failure, command::print};
use taskwork_scale::policy::Candidate;

use super::{super::table, memory::Said};

/// The number of decisions that are shown.
const SHOWN_MAX: usize = 20;

/// Prints the recent decisions of the cluster's controller.
pub(super) async fn run(client: &Client, json: bool) -> Result<(), Failure> {
    client.check_cluster().await?;
    let Some(told) = client.scaling_said().await?.filter(|told| !told.said.is_empty()) else {
        return Err(Failure::failed(format!(
            "no controller has decided anything about the machines of cluster {}. taskwork scale \
             --connector FILE --max N starts one",
            client.cluster_name()
        )));
    };
    let said = Said::read(&told.said);
    if json {
        let mut value = serde_json::to_value(&said).unwrap_or_default();
        value["controller"] = json!(told.holder);
        print(&format!("{}\n", crate::json::versioned(value)));
    } else {
        print(&text(&said, told.holder.as_deref()));
    }
    Ok(())
}

fn text(said: &Said, holder: Option<&str>) -> String {
    let machines: Vec<String> =
        said.machines.iter().map(|(standing, count)| format!("{count} {standing}")).collect();
    let mut rows = vec![
        ("controller", holder.unwrap_or("none runs now; this is the report of the last one").to_owned()),
        ("decided", table::time(said.at_ms)),
        ("machines", if machines.is_empty() { "none".to_owned() } else { machines.join(", ") }),
        ("wanted", said.wanted.to_string()),
        ("why", said.reason.clone()),
        ("goals", goals(said)),
        ("spent", spent(said)),
    ];
    rows.extend(said.unserved.iter().map(|job| ("not served", format!("job {}: {}", job.id, job.reason))));
    rows.extend(said.troubles.iter().map(|(offer, why)| ("suspended", format!("offer {offer}: {why}"))));
    let mut text = table::list(&rows);
    if !said.table.is_empty() {
        text += "\n";
        text += &candidates("#MACHINES", &said.table, said.currency.as_deref());
    }
    text += "\n";
    let decisions = said.decisions.iter().take(SHOWN_MAX);
    text += &table::table(
        &["DECIDED", "#MACHINES", "WHY"],
        decisions.map(|past| vec![table::time(past.at_ms), past.wanted.to_string(), past.reason.clone()]),
    );
    text
}

fn goals(said: &Said) -> String {
    let goals = &said.goals;
    let mut words = vec![format!("{} to {} machines", goals.min, goals.max)];
    words.extend(goals.deadline_ms.map(|at| format!("finished by {}", table::time(at))));
    words.extend(
        goals.budget.map(|budget| format!("at most {}", money(Some(budget), said.currency.as_deref()))),
    );
    words.extend(goals.efficiency.map(|share| format!("an efficiency of at least {share} per worker")));
    words.extend(
        goals
            .delay_price
            .map(|price| format!("an hour's delay costs {}", money(Some(price), said.currency.as_deref()))),
    );
    words.extend(goals.then_suspend.then(|| "then the jobs are suspended".to_owned()));
    words.join(", ")
}

/// Formats the cost so far, and its start time.
fn spent(said: &Said) -> String {
    let amount = money(said.spent, said.currency.as_deref());
    match said.spent_since_ms {
        Some(since_ms) => format!("{amount} since {}", table::time(since_ms)),
        None => amount,
    }
}

/// Formats an amount of money, with more digits for small ones.
pub(crate) fn money(amount: Option<f64>, currency: Option<&str>) -> String {
    let Some(amount) = amount else { return "unknown".to_owned() };
    let digits = if amount != 0.0 && amount.abs() < 0.1 { 4 } else { 2 };
    let currency = currency.map_or_else(String::new, |currency| format!("{currency} "));
    format!("{currency}{amount:.digits$}")
}

/// Formats possible sizes of the cluster, in a unit, with their forecasts.
pub(crate) fn candidates(unit: &str, sizes: &[Candidate], currency: Option<&str>) -> String {
    let unknown = || "unknown as yet".to_owned();
    let rows = sizes.iter().map(|size| {
        let finish = size.finish_ms.map_or_else(unknown, |(early, late)| span(early, late));
        let note = match (size.now, size.note.as_str()) {
            (true, "") => "now".to_owned(),
            (true, note) => format!("now; {note}"),
            (false, note) => note.to_owned(),
        };
        vec![
            size.nodes.to_string(),
            size.workers.to_string(),
            finish,
            size.cost.map_or_else(|| "-".to_owned(), |cost| money(Some(cost), currency)),
            size.efficiency.map_or_else(|| "-".to_owned(), |share| format!("{share:.2}")),
            note,
        ]
    });
    table::table(&[unit, "#WORKERS", "FINISH (8 OF 10)", "#COST", "#EFFICIENCY", "NOTE"], rows)
}

/// Formats a range of times in UTC; the date is repeated only if it differs.
fn span(early: u64, late: u64) -> String {
    let (early, late) = (table::time(early), table::time(late));
    match (early.split_once('T'), late.split_once('T')) {
        (Some((day, _)), Some((same, hour))) if day == same => format!("{early} to {hour}"),
        _ => format!("{early} to {late}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use taskwork_scale::policy::JobUnserved;

    use super::*;

    #[test]
    fn small_amounts_have_more_digits() {
        assert_eq!(money(Some(0.004), None), "0.0040");
        assert_eq!(
            [Some(0.0), Some(12.5)].map(|amount| money(amount, Some("EUR"))),
            ["EUR 0.00", "EUR 12.50"]
        );
    }

    #[test]
    fn report_shows_decision_with_reasons() {
        let mut said = Said {
            currency: Some("EUR".to_owned()),
            machines: BTreeMap::from([("working".to_owned(), 3), ("booting".to_owned(), 2)]),
            troubles: BTreeMap::from([("large".to_owned(), "a quota of 0".to_owned())]),
            spent: None,
            unserved: vec![JobUnserved { id: "j-7".to_owned(), reason: "it needs uts 1".to_owned() }],
            table: vec![
                Candidate {
                    nodes: 3,
                    workers: 12,
                    finish_ms: Some((3_600_000, 7_200_000)),
                    cost: Some(1.5),
                    efficiency: Some(0.956),
                    now: true,
                    note: "best".to_owned(),
                },
                Candidate { nodes: 9, workers: 36, ..Candidate::default() },
            ],
            ..Said::default()
        };
        said.decided(1_000, 5, "the deadline is near");
        let shown = text(&said, None);
        for part in [
            "none runs now",
            "2 booting, 3 working",
            "the deadline is near",
            "unknown",
            "offer large: a quota of 0",
            "job j-7: it needs uts 1",
            "1970-01-01T01:00:00Z to 02:00:00Z",
            "EUR 1.50",
            "0.96",
            "now; best",
            "unknown as yet",
        ] {
            assert!(shown.contains(part), "no {part:?} in\n{shown}");
        }
        assert!(!shown.contains("EUR 0.00"), "an unknown cost is not 0:\n{shown}");
        assert!(text(&said, Some("host process 7")).contains("host process 7"));
        said.spent_since_ms = Some(0);
        assert!(text(&said, None).contains("unknown since 1970-01-01T00:00:00Z"));
    }
}
