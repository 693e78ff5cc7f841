//! `taskwork jobs`.

use std::cmp::Reverse;

use serde_json::Value;
use taskwork::{
    client::{
        Overview, Share, Stage,
        records::{JobRecord, Member},
    },
    view::JobCost,
};
use taskwork_cli::Failure;

use super::{
    connection::{Connection, Watch},
    json::{self, STAGES, name_of},
    scale::explain::money,
    table::{self, lapse},
};

/// The options of `taskwork jobs`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Arguments {
    /// Only jobs in these states, named as by --json: running,queued.
    #[arg(long = "state", value_name = "STATE", value_delimiter = ',', value_parser = state)]
    states: Vec<Stage>,
    /// Only jobs with this text in their name.
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Only jobs of this program.
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// Only jobs that this user has submitted.
    #[arg(long, value_name = "USER")]
    owner: Option<String>,
    /// The order. Jobs that are equal in it are in the order of their submission.
    #[arg(long, value_name = "ORDER", value_enum, default_value_t = Order::Submitted)]
    sort: Order,
    /// Reverse the order.
    #[arg(long)]
    reverse: bool,
    /// The maximum number of jobs: the first ones.
    #[arg(long, value_name = "NUMBER")]
    limit: Option<usize>,
    #[command(flatten)]
    pub(super) watch: Watch,
}

/// The orders of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Order {
    Submitted,
    /// Jobs that are not over come last.
    Ended,
    State,
    Name,
    Program,
    Owner,
    /// The highest first.
    Priority,
}

/// Parses the state of a job.
fn state(text: &str) -> Result<Stage, String> {
    let named = |stage: &Stage| name_of(*stage) == text;
    STAGES
        .into_iter()
        .find(named)
        .ok_or_else(|| format!("expected one of {}", STAGES.map(name_of).join(", ")))
}

/// A job: its id, its stage, and its record if that can be read.
type Row<'a> = (&'a str, Stage, Option<&'a JobRecord>);

/// Returns the cost of a job, by its id.
type CostOf<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads the jobs, with their costs if a node has a price: the costs follow from the reports of the nodes.
async fn read(connection: &Connection) -> Result<Overview, Failure> {
    let overview = connection.overview().await?;
    let has_price = |member: &Member| member.labels.get("price").is_some();
    if overview.members.iter().any(has_price) {
        return Ok(connection.client.overview_with_reports().await?);
    }
    Ok(overview)
}

/// Formats the cost of a job; the time of nodes without a known price is not in it.
fn cost(cost: &JobCost) -> Option<String> {
    let amounts = cost.spent.money.iter().map(|(currency, amount)| money(Some(*amount), Some(currency)));
    let amounts = amounts.collect::<Vec<_>>().join(" + ");
    let bound = if cost.unpriced > 0 { "≥ " } else { "" };
    (!amounts.is_empty()).then(|| format!("{bound}{amounts}"))
}

pub(super) async fn run(connection: &Connection, arguments: &Arguments) -> Result<(), Failure> {
    let read = async || {
        let overview = read(connection).await?;
        let jobs = overview.jobs.iter().map(|job| (job.id.as_str(), job.stage, job.record.as_ref()));
        let jobs = arguments.select(jobs);
        let entries = jobs.iter().filter_map(|(id, ..)| overview.job(id));
        let json: Value = entries.map(|job| json::job(&overview, job)).collect();
        let cost = |id: &str| overview.job(id)?.cost.as_ref().and_then(cost);
        Ok::<_, Failure>((json, text(&jobs, &cost)))
    };
    connection.list(arguments.watch.watch, read).await
}

impl Arguments {
    /// Returns the selected jobs, sorted.
    fn select<'a>(&self, jobs: impl Iterator<Item = Row<'a>>) -> Vec<Row<'a>> {
        let mut jobs: Vec<Row<'_>> = jobs.filter(|job| self.is_meant(job)).collect();
        let by_text = |jobs: &mut Vec<Row<'_>>, of: fn(&JobRecord) -> &str| {
            jobs.sort_by(|(.., a), (.., b)| a.map(of).cmp(&b.map(of)));
        };
        match self.sort {
            Order::Submitted => {}
            Order::Ended => jobs
                .sort_by_key(|(.., record)| record.and_then(|record| record.finished_ms).unwrap_or(u64::MAX)),
            Order::State => jobs.sort_by_key(|(_, stage, _)| *stage),
            Order::Name => by_text(&mut jobs, |record| &record.name),
            Order::Program => by_text(&mut jobs, |record| &record.program),
            Order::Owner => by_text(&mut jobs, |record| &record.submitter),
            Order::Priority => {
                jobs.sort_by_key(|(.., record)| Reverse(record.map(|record| record.share.priority)));
            }
        }
        if self.reverse {
            jobs.reverse();
        }
        jobs.truncate(self.limit.unwrap_or(usize::MAX));
        jobs
    }

    fn is_meant(&self, (_, stage, record): &Row<'_>) -> bool {
        let is_in_state = self.states.is_empty() || self.states.contains(stage);
        let Self { name, program, owner, .. } = self;
        let Some(record) = record else {
            return is_in_state && name.is_none() && program.is_none() && owner.is_none();
        };
        is_in_state
            && name.as_ref().is_none_or(|name| record.name.contains(name))
            && program.as_ref().is_none_or(|program| record.program == *program)
            && owner.as_ref().is_none_or(|owner| record.submitter == *owner)
    }
}

/// Returns the table of jobs, with the priorities and weights if one is not the default, and with costs if one is known.
fn text(jobs: &[Row<'_>], cost: CostOf<'_>) -> String {
    let records = || jobs.iter().filter_map(|(_, _, record)| *record);
    let has_shares = records().any(|record| record.share != Share::default());
    let shares: &[&str] = if has_shares { &["#PRIORITY", "#WEIGHT"] } else { &[] };
    let costs: &[&str] = if jobs.iter().any(|(id, ..)| cost(id).is_some()) { &["#COST"] } else { &[] };
    let row = |(id, stage, record): &Row<'_>| {
        let its_cost = cost(id);
        let (id, stage) = ((*id).to_owned(), stage.text().to_owned());
        let Some(record) = record else { return vec![id, stage] };
        let ended = |of: &dyn Fn(u64) -> String| record.finished_ms.map_or_else(|| "-".to_owned(), of);
        let mut row = vec![
            id,
            stage,
            format!("{} {}", record.program, record.program_version),
            record.name.clone(),
            record.submitter.clone(),
            table::time(record.submitted_ms),
            ended(&table::time),
            ended(&|end| lapse(record.submitted_ms, end)),
        ];
        if has_shares {
            row.extend([record.share.priority.to_string(), record.share.weight.to_string()]);
        }
        if !costs.is_empty() {
            row.push(its_cost.unwrap_or_else(|| "-".to_owned()));
        }
        row.extend([record.attempt.to_string(), table::or_none(&record.reason.clone().unwrap_or_default())]);
        row
    };
    let columns = ["JOB", "STATE", "PROGRAM", "NAME", "OWNER", "SUBMITTED", "ENDED", "TOOK"];
    let columns: Vec<&str> = columns
        .into_iter()
        .chain(shares.iter().chain(costs).copied())
        .chain(["#ATTEMPT", "REASON"])
        .collect();
    table::table(&columns, jobs.iter().map(row))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::*;

    fn record(priority: i32, finished_ms: Option<u64>) -> JobRecord {
        let record = json!({
            "format": 2, "program": "tree", "program_version": "1", "kind": "tree", "name": "big", "submitter": "anna",
            "state": "running", "attempt": 1, "attempts_max": 3, "root": "", "shared_chunks": 0, "submitted_ms": 1_000,
            "finished_ms": finished_ms, "reason": null, "lost": [], "share": { "priority": priority },
        });
        serde_json::from_value(record).unwrap()
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn arguments(line: &[&str]) -> Result<Arguments, String> {
        let line = ["jobs"].into_iter().chain(line.iter().copied());
        Line::try_parse_from(line).map(|line| line.arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn jobs_are_filtered_sorted_and_limited() {
        let named = |name: &str, priority, finished_ms| JobRecord {
            name: name.to_owned(),
            ..record(priority, finished_ms)
        };
        let records = [named("big", 0, None), named("small", 5, Some(9)), named("bigger", 0, Some(7))];
        let [big, small, bigger] = records.each_ref().map(Some);
        let jobs = [
            ("1", Stage::Running, big),
            ("2", Stage::Done, small),
            ("3", Stage::Failed, bigger),
            ("4", Stage::Unreadable, None),
        ];
        let of = |line: &[&str]| {
            let arguments = arguments(line).unwrap();
            arguments.select(jobs.into_iter()).into_iter().map(|(id, ..)| id).collect::<String>()
        };
        assert_eq!(of(&[]), "1234");
        assert_eq!(of(&["--state", "running,failed"]), "13");
        assert_eq!(of(&["--name", "big", "--reverse"]), "31");
        assert_eq!(of(&["--sort", "ended"]), "3214");
        assert_eq!(of(&["--sort", "priority", "--limit", "2"]), "21");
        assert_eq!(of(&["--owner", "anna", "--program", "tree", "--sort", "name"]), "132");
        assert_eq!(of(&["--owner", "bob"]), "");
    }

    #[test]
    fn unknown_state_is_refused_with_the_known_ones() {
        let error = arguments(&["--state", "runing"]).unwrap_err();
        assert!(error.contains("runing") && error.contains("running, queued"), "{error}");
    }

    #[test]
    fn jobs_table_has_owner_and_end_and_shares_if_set() {
        let (running, done) = (record(0, None), record(2, Some(3_000)));
        let table = "\
JOB  STATE    PROGRAM  NAME  OWNER  SUBMITTED             ENDED                 TOOK  ATTEMPT  REASON
j-1  running  tree 1   big   anna   1970-01-01T00:00:01Z  -                     -           1  -
j-3  unreadable
";
        let rows = [("j-1", Stage::Running, Some(&running)), ("j-3", Stage::Unreadable, None)];
        let words = |text: &str| {
            let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
            lines.collect::<Vec<_>>()
        };
        assert_eq!(words(&text(&rows, &|_| None)), words(table));
        let rows = [("j-1", Stage::Running, Some(&running)), ("j-2", Stage::Done, Some(&done))];
        let with_shares = text(&rows, &|_| None);
        let lines = words(&with_shares);
        assert!(lines[0].contains("TOOK PRIORITY WEIGHT ATTEMPT"), "{with_shares}");
        assert!(
            lines[2].contains("anna 1970-01-01T00:00:01Z 1970-01-01T00:00:03Z 2s 2 1 1"),
            "{with_shares}"
        );
        let spent = json!({ "node_ms": 9, "money": { "EUR": 1.5, "USD": 0.01 }, "nodes": 2, "unpriced": 1 });
        let spent: JobCost = serde_json::from_value(spent).unwrap();
        let with_costs = text(&rows, &|id| cost(&spent).filter(|_| id == "j-1"));
        let lines = words(&with_costs);
        assert!(lines[0].contains("WEIGHT COST ATTEMPT"), "{with_costs}");
        assert!(lines[1].contains(" ≥ EUR 1.50 + USD 0.0100 1"), "{with_costs}");
        assert!(lines[2].contains(" 2 1 - 1"), "{with_costs}");
    }
}
