//! One object to eight processes: along a tree, where each forwards the received part; all from the owner;
//! and eight plain streams of quinn from one process.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, bail};

use super::{
    MIB,
    party::{Order, Reply},
};
use crate::{
    measure::Sample,
    row::{Row, Target},
};

/// The number of processes that fetch the object.
const FETCHERS: u64 = 8;
/// The number of processes that fetch from the same process, in the tree.
const CHILDREN: u64 = 2;
/// The size of the object, in MiB.
const OBJECT_MIB: usize = 1024;

/// Runs the benchmark.
///
/// # Errors
/// If a process fails.
pub(super) fn run(rounds: usize) -> Result<Vec<Row>> {
    let mut all = (0..=FETCHERS).map(Party::start).collect::<Result<Vec<_>>>()?;
    let cards: Vec<_> = all.iter().map(|party| party.card.clone()).collect();
    for party in &mut all {
        party.ask(&Order::Meet { cards: cards.clone() })?;
    }
    let Reply::Owned { object, plain } = all[0].ask(&Order::Own { mib: OBJECT_MIB })? else {
        bail!("the owner has no object");
    };
    let tree = |number: u64| {
        let hands_on = number * CHILDREN < FETCHERS;
        Order::Fetch { object: object.clone(), from: (number - 1) / CHILDREN, hands_on }
    };
    let star = |_| Order::Fetch { object: object.clone(), from: 0, hands_on: false };
    let plain = |_| Order::Plain { source: plain.clone(), mib: OBJECT_MIB };
    let (mut times, mut sent) = ([const { Vec::new() }; 3], [const { Vec::new() }; 2]);
    for _ in 0..rounds {
        times[0].push(together(&mut all, tree)?);
        sent[0].push(sent_mib(&mut all)?);
        times[1].push(together(&mut all, star)?);
        sent[1].push(sent_mib(&mut all)?);
        times[2].push(together(&mut all, plain)?);
    }
    let ratio = |k: usize| Sample::of(times[k].iter().zip(&times[2]).map(|(time, plain)| time / plain));
    let told = |what: &str, unit, sample| Row::new(what, unit, Target::Told, sample);
    let seconds = |k: usize| Sample::of(times[k].iter().copied());
    let mib = |k: usize| Sample::of(sent[k].iter().copied());
    Ok(vec![
        told("1 GiB to 8 processes along a tree: sent by the owner", "MiB", mib(0)),
        told("the same, each from the owner: sent by it", "MiB", mib(1)),
        told("along a tree", "s", seconds(0)),
        told("each from the owner", "s", seconds(1)),
        told("8 plain streams of quinn from one process", "s", seconds(2)),
        told("along a tree ÷ plain streams", "", ratio(0)),
        told("each from the owner ÷ plain streams", "", ratio(1)),
    ])
}

/// Sends an order to all but the owner, and returns the time until all have executed it, in seconds.
fn together(all: &mut [Party], order: impl Fn(u64) -> Order) -> Result<f64> {
    let started = Instant::now();
    for (number, party) in (1..).zip(&mut all[1..]) {
        party.say(&order(number))?;
    }
    for party in &mut all[1..] {
        party.reply()?;
    }
    Ok(started.elapsed().as_secs_f64())
}

/// Returns the amount that the owner has sent since the last call, in MiB.
fn sent_mib(all: &mut [Party]) -> Result<f64> {
    match all[0].ask(&Order::Sent)? {
        Reply::Sent { bytes } => Ok(bytes as f64 / MIB as f64),
        other => bail!("it answers {other:?}"),
    }
}

/// A process, which is killed when this is dropped.
struct Party {
    process: Child,
    orders: ChildStdin,
    replies: BufReader<ChildStdout>,
    card: taskwork::benching::Card,
}

impl Party {
    fn start(number: u64) -> Result<Self> {
        let program = taskwork_tests::cluster::program("exchange")?;
        let mut process = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} cannot be started", program.display()))?;
        let (orders, replies) = (process.stdin.take(), process.stdout.take());
        let (orders, replies) = orders.zip(replies).context("it has no pipes")?;
        let card = (number, ([127, 0, 0, 1], 0).into(), String::new());
        let mut party = Self { process, orders, replies: BufReader::new(replies), card };
        match party.ask(&Order::Open { number })? {
            Reply::Opened { card } => party.card = card,
            other => bail!("it answers {other:?}"),
        }
        Ok(party)
    }

    fn ask(&mut self, order: &Order) -> Result<Reply> {
        self.say(order)?;
        self.reply()
    }

    fn say(&mut self, order: &Order) -> Result<()> {
        writeln!(self.orders, "{}", serde_json::to_string(order)?).context("the process has ended")
    }

    fn reply(&mut self) -> Result<Reply> {
        let mut line = String::new();
        self.replies.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("a process has answered {line:?}"))
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
