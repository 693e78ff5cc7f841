//! `cargo xtask mutants`: puts one deliberate bug after another into a copy of the workspace, and counts the
//! seeds that the simulator needs to find each.
//!
//! A simulator that finds no bugs proves nothing unless it is known to find existing ones.

mod workflows;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::workspace;

/// A deliberate bug: a piece of source text and its replacement.
struct Mutant {
    name: &'static str,
    file: &'static str,
    original: &'static str,
    mutated: &'static str,
}

impl Mutant {
    fn is_of_workflows(&self) -> bool {
        self.file.starts_with("dataflow-")
    }

    /// Returns the number of seeds within which it is to be found.
    fn seeds(&self) -> u32 {
        if self.is_of_workflows() { workflows::SEEDS } else { SEEDS }
    }
}

const fn mutant(
    name: &'static str,
    file: &'static str,
    original: &'static str,
    mutated: &'static str,
) -> Mutant {
    Mutant { name, file, original, mutated }
}

/// The bugs. The first ten are typical of any such protocol.
const MUTANTS: &[Mutant] = &[
    mutant(
        "forget a child",
        "taskwork/src/toggles.rs",
        "        completed.named().for_each(",
        "        completed.named().skip(1).for_each(",
    ),
    mutant(
        "commit twice on unknown outcome",
        "zk/src/accounting.rs",
        "        create(attempt.txn(txn), b\"\"),\n",
        "        { let _ = txn; Op::Check { path: attempt.base(), version: None } },\n",
    ),
    mutant(
        "fresh txn id on retry",
        "taskwork/src/core/accounting.rs",
        "                let transaction = transaction.clone();\n",
        "                let transaction = Transaction { txn: self.next_txn, ..transaction.clone() };\n                self.next_txn += 1;\n",
    ),
    mutant(
        "forget the attempt check",
        "taskwork/src/core/node.rs",
        "            (Phase::Active(run), message) if run.attempt == attempt => {\n",
        "            (Phase::Active(run), message) => {\n",
    ),
    mutant(
        "grant without acknowledgement",
        "taskwork/src/core/receipts.rs",
        "                book.open.insert(grant, Decision::Accepted);\n",
        "",
    ),
    mutant(
        "flush without transit",
        "taskwork/src/core/flushing.rs",
        "                draft.give.push(gift);\n",
        "                drop(gift);\n",
    ),
    mutant(
        "drain that forgets the queue",
        "taskwork/src/core/leaving.rs",
        "            drain.pile.extend(tasks);\n",
        "            let _ = drain;\n            drop(tasks);\n",
    ),
    mutant(
        "leader without fence",
        "zk/src/job/lead.rs",
        "        fence.check(),\n        Op::Set",
        "        { let _ = fence; Op::Check { path: paths.record(), version: None } },\n        Op::Set",
    ),
    mutant(
        "batch committed without output",
        "taskwork/src/pool/ledger.rs",
        "        let output = codec::encode(&self.total)?;\n",
        "        let output = codec::encode(&O::default())?;\n",
    ),
    mutant(
        "parked task claimed twice",
        "zk/src/accounting/claims.rs",
        "        ops.push(delete(path.clone()));\n",
        "        ops.push(Op::Check { path: path.clone(), version: None });\n",
    ),
    mutant(
        "parked again under the same name",
        "zk/src/paths.rs",
        "format!(\"{}/parked/{task}{PARKED_BY}{txn}\", self.0)",
        "{ let _ = txn; format!(\"{}/parked/{task}\", self.0) }",
    ),
    mutant(
        "more grants than a thief can remember",
        "taskwork/src/core/victim.rs",
        "        self.open.len() < limits.open_grants_max && remembered < limits.open_grants_max as u64\n",
        "        let _ = remembered;\n        self.open.len() < limits.open_grants_max\n",
    ),
    mutant(
        "a late claim settles a txn id that never was",
        "taskwork/src/core/accounting.rs",
        "    pub(super) fn too_late(&mut self, txn: u64) -> Option<TransactionKind> {\n        self.end(txn)\n",
        "    pub(super) fn too_late(&mut self, txn: u64) -> Option<TransactionKind> {\n        self.written(txn)\n",
    ),
    mutant(
        "take back what is being written",
        "taskwork/src/core/given.rs",
        "        let void = |(_, given): &(&u64, &Unwritten)| !given.writing && which(given);\n",
        "        let void = |(_, given): &(&u64, &Unwritten)| which(given);\n",
    ),
    mutant(
        "a task that moves leaves its children behind",
        "taskwork/src/pool/mod.rs",
        "            children: self.children.clone(),\n",
        "            children: Vec::new(),\n",
    ),
    mutant(
        "commit before the incumbent is written",
        "taskwork/src/shell/coordination/orders.rs",
        "        self.flush_variables().await?;\n",
        "",
    ),
    mutant(
        "a variable that is written without looking",
        "zk/src/variable.rs",
        "            Ok((old, _)) if !improves(value, &old) => return Ok(Published::Beaten(old)),\n            Ok((_, stat)) => store.set(path, value, Some(stat.version)).await.map(drop),\n",
        "            Ok((old, _)) if !improves(value, &old) => return Ok(Published::Beaten(old)),\n            Ok(_) => store.set(path, value, None).await.map(drop),\n",
    ),
    mutant(
        "listen to strangers",
        "taskwork/src/core/node.rs",
        "        if !self.around.members.contains(&from) {\n            return;\n        }\n        match",
        "        match",
    ),
    mutant(
        "panic at what cannot be read",
        "taskwork/src/shell/dispatch.rs",
        "\"a message could not be read and was dropped\");\n                return;\n",
        "\"a message could not be read and was dropped\");\n                panic!(\"unreadable\")\n",
    ),
    mutant(
        "randomness that is not the seed's",
        "taskwork/src/core/node.rs",
        "            random: SmallRng::seed_from_u64(seed),\n",
        "            random: SmallRng::seed_from_u64(seed ^ rand::random::<u64>()),\n",
    ),
    mutant(
        "rest while ZooKeeper is away",
        "taskwork/src/shell/coordination/mod.rs",
        "        self.expired.wait().await;\n",
        "        let mut session = zk::Store::session(&*self.store);\n        loop {\n            let now = *session.borrow_and_update();\n            match now {\n                zk::Session::Disconnected => self.pool.stop(),\n                zk::Session::Connected => self.pool.resume(),\n                zk::Session::Expired => break,\n            }\n            if session.changed().await.is_err() {\n                return;\n            }\n        }\n",
    ),
    mutant(
        "forget that it was told to leave",
        "taskwork/src/shell/work.rs",
        "            (_, Intent::Leave) => Some(Ok(Fate::Left)),\n",
        "            (None, Intent::Leave) => Some(Ok(Fate::Left)),\n",
    ),
    mutant(
        "no new watch after a reconnect",
        "zk/src/membership.rs",
        "                    WatchEvent::Rescan => self.events = None,\n",
        "                    WatchEvent::Rescan => self.rescan = true,\n",
    ),
    mutant(
        "take the end of a watch for that of the session",
        "zk/src/membership.rs",
        "                        seen(&*self.store, &event)?;\n",
        "                        let _ = seen(&*self.store, &event);\n                        return Err(Error::SessionExpired);\n",
    ),
    mutant(
        "enter without sync",
        "zk/src/election.rs",
        "        store.sync(&folder).await?;\n        let found",
        "        let found",
    ),
    mutant(
        "forget ids that are owed",
        "taskwork/src/core/accounting.rs",
        "        held.owed = self.owed.clone();\n",
        "        held.owed = Toggles::default();\n",
    ),
    mutant(
        "stay a candidate for a job that is over",
        "taskwork/src/shell/node.rs",
        "        seat.run_errand(&self.coordination.job, async move { coordination.withdraw().await });\n",
        "        drop(coordination);\n",
    ),
    mutant(
        "leave while a task runs",
        "taskwork/src/core/leaving.rs",
        "        let done = fits && all_heard && all_own && pool.is_quiet();\n",
        "        let done = fits && all_heard && all_own;\n",
    ),
    mutant(
        "claim without taking part",
        "taskwork/src/core/node.rs",
        "self.accounting.claim(source, self.enrolment != Enrolment::Done)",
        "self.accounting.claim(source, false)",
    ),
    mutant(
        "take tasks before taking part",
        "taskwork/src/core/stealing.rs",
        "                    self.hold_back(around, granted);\n",
        "                    self.granted(around, granted);\n",
    ),
    mutant(
        "open grants of any size",
        "taskwork/src/core/victim.rs",
        "        if *open_bytes >= limits.grant_bytes_max || self.open_bytes() >= limits.open_grant_bytes_max {\n",
        "        let _ = open_bytes;\n        if false {\n",
    ),
    mutant(
        "tasks that do not fit into a grant are forgotten",
        "taskwork/src/pool/work.rs",
        "        self.queue.put_back(kept, &self.signals);\n",
        "        drop(kept);\n",
    ),
    mutant(
        "flush tentative work",
        "taskwork/src/pool/cut.rs",
        "        !self.tentative.contains(&basis) && !self.void.contains(&basis)\n",
        "        !self.void.contains(&basis)\n",
    ),
    mutant(
        "forget what is void",
        "taskwork/src/core/flushing.rs",
        "        around.actions.push(Action::Void { bases });\n",
        "        drop(bases);\n",
    ),
    mutant(
        "claim from a member",
        "zk/src/accounting/claims.rs",
        "            && store.exists(&cluster.member(gone)).await?.is_some()\n",
        "            && store.exists(&cluster.member(gone)).await?.is_some_and(|stat| stat.children > 9)\n",
    ),
    mutant(
        "set a task aside that still counts",
        "taskwork/src/core/accounting.rs",
        "            self.owed.add(&task.completed());\n",
        "            let _ = task;\n",
    ),
    mutant(
        "set a task aside and run it",
        "taskwork/src/core/trials.rs",
        "        tasks\n    }\n\n    /// Takes out the condemned",
        "        tasks.extend(self.condemned.iter().map(|condemned| condemned.task.clone()));\n        tasks\n    }\n\n    /// Takes out the condemned",
    ),
    mutant(
        "hold a task that is set aside",
        "taskwork/src/core/accounting.rs",
        "        tasks.extend(beside);\n",
        "        tasks.extend(beside);\n        tasks.extend(condemned.iter().map(|condemned| condemned.task.clone()));\n",
    ),
    mutant(
        "take what was taken meanwhile for the end of the attempt",
        "zk/src/accounting.rs",
        "        if refusal == CommitError::NotMember || is_over(store, attempt).await? {\n",
        "        if true {\n",
    ),
    mutant(
        "offer tasks to a node that works elsewhere",
        "taskwork/src/core/leaving.rs",
        "    members.intersection(heard_of).filter(|node| !drain.refusing.contains(node))\n",
        "    let _ = heard_of;\n    members.difference(&drain.refusing)\n",
    ),
    mutant(
        "number tasks from zero after a retry",
        "taskwork/src/shell/node.rs",
        "Arc::clone(&seat.tasks_made));",
        "Arc::default());",
    ),
    mutant(
        "go on under an id that was completed",
        "taskwork/src/context.rs",
        "        *id = renewed;\n",
        "        let _ = id;\n",
    ),
    mutant(
        "count what is done after the cut in it",
        "taskwork/src/pool/cut.rs",
        "            Standing::After(self.number)\n",
        "            Standing::Before\n",
    ),
    mutant(
        "end an open job before all that was added has begun",
        "zk/src/job/open.rs",
        "filter(|task| !begun.contains(task))",
        "filter(|task| begun.contains(task) && false)",
    ),
    mutant(
        "drop a task whose worker is recalled",
        "taskwork/src/pool/worker.rs",
        "            self.put_by(worker, entry, if yields { End::Second } else { End::Front });\n            return None;\n",
        "            return None;\n",
    ),
    mutant(
        "take part again under the same id",
        "taskwork/src/shell/work.rs",
        "                    self.rested.insert(self.active[place].job.0.clone());\n",
        "",
    ),
    mutant(
        "count a clean leave as a loss",
        "taskwork/src/shell/coordination/orders.rs",
        "Ok((!had_nothing).then_some(node))",
        "Ok(Some(node))",
    ),
    mutant(
        "leave before the companion was asked",
        "taskwork/src/shell/coordination/leaving.rs",
        "if !std::mem::replace(&mut was_asked, true) {",
        "if std::mem::replace(&mut was_asked, false) {",
    ),
    mutant(
        "blame what is on trial for the panic of a task that was not written",
        "taskwork/src/shell/coordination/deaths.rs",
        "        let (task, reason) = (written.unwrap_or(task), reason.to_owned());\n",
        "        let tried = held.suspect.as_ref().map_or(task, |tried| tried.task);\n        let (task, reason) = (if is_held(&task) { task } else { tried }, reason.to_owned());\n",
    ),
    mutant(
        "miss a retry while leading",
        "taskwork/src/shell/coordination/leader.rs",
        "if !self.is_retried().await {",
        "if true {",
    ),
    mutant(
        "wake a waiting task before what it has spawned is complete",
        "taskwork/src/pool/queue/waiting.rs",
        "        self.named && self.odd.is_empty()\n",
        "        self.named\n",
    ),
    mutant(
        "forget the scope of a split",
        "taskwork/src/context.rs",
        "let Part { id, scope, basis, ref lineage, .. } = self.part;\n",
        "let Part { id, basis, ref lineage, .. } = self.part;\n        let scope = None;\n",
    ),
    mutant(
        "end a wait by a list in which nothing is named yet",
        "taskwork/src/scope.rs",
        "listed.contains(waiting) && !open.contains(scope)",
        "(listed.contains(waiting) || true) && !open.contains(scope)",
    ),
    mutant(
        "name waiting tasks in any order",
        "taskwork/src/toggles.rs",
        "        let is_innermost = |(_, scope): &(&Mark, &Scope)| !within.contains_key(scope);\n",
        "        let is_innermost = |(_, scope): &(&Mark, &Scope)| !within.contains_key(scope) || true;\n",
    ),
    mutant(
        "leave waiting tasks out of what is written",
        "taskwork/src/pool/queue/cuts.rs",
        "        counting.extend(waiting.take(|basis| cut.counts(basis)));\n",
        "        let _ = (cut, waiting);\n",
    ),
    mutant(
        "drain that forgets the tasks that wait",
        "taskwork/src/pool/queue.rs",
        "        taken.extend(state.waiting.take(|_| true));\n",
        "        state.waiting.take(|_| true);\n",
    ),
];

/// The number of seeds to run before a bug counts as not found.
const SEEDS: u32 = 10_000;

/// Tries every mutant, or those whose name contains `only`, and prints a table.
///
/// # Errors
/// If a mutant no longer fits the source, does not compile, or is not found.
pub(crate) fn run(only: Option<&str>) -> Result<()> {
    let copy = copy_workspace()?;
    let chosen = all().filter(|mutant| only.is_none_or(|only| mutant.name.contains(only)));
    let mut survivors = Vec::new();
    println!("| bug | seeds until it is found | found by |\n|---|---|---|");
    for mutant in chosen {
        let found = find(&copy, mutant).with_context(|| format!("mutant {:?}", mutant.name))?;
        if let Some((seeds, what)) = found {
            println!("| {} | {seeds} | {what} |", mutant.name);
        } else {
            println!("| {} | not within {} | |", mutant.name, mutant.seeds());
            survivors.push(mutant.name);
        }
    }
    ensure!(survivors.is_empty(), "these bugs were not found: {}", survivors.join(", "));
    Ok(())
}

/// Returns all bugs.
fn all() -> impl Iterator<Item = &'static Mutant> {
    MUTANTS.iter().chain(workflows::MUTANTS)
}

/// Applies the bug, runs seeds until one fails, and reverts it. Returns the number of seeds and the failure.
fn find(copy: &Path, mutant: &Mutant) -> Result<Option<(u64, String)>> {
    let file = copy.join(mutant.file);
    let source = fs::read_to_string(&file)?;
    fs::write(&file, mutated(&source, mutant)?)?;
    let found = simulate(copy, mutant);
    fs::write(&file, source)?;
    found
}

fn mutated(source: &str, mutant: &Mutant) -> Result<String> {
    let places = source.matches(mutant.original).count();
    ensure!(places == 1, "{}: the text to be changed is there {places} times, not once", mutant.file);
    Ok(source.replace(mutant.original, mutant.mutated))
}

fn simulate(copy: &Path, mutant: &Mutant) -> Result<Option<(u64, String)>> {
    let mut cargo = workspace::command("cargo");
    cargo.current_dir(copy).args(["run", "--quiet", "-p", "taskwork-simulation", "--bin", "simulate", "--"]);
    cargo.args(["--seeds", &mutant.seeds().to_string(), "--json", "--terse"]);
    if mutant.is_of_workflows() {
        cargo.args(["--kind", workflows::KINDS]);
    }
    cargo.env("RUSTFLAGS", "--cap-lints=allow").env("CARGO_TARGET_DIR", copy.join("target"));
    let output = cargo.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(line) = text.lines().find(|line| line.starts_with('{')) else {
        bail!("the simulator could not be built, or has said nothing: {}", output.status);
    };
    let tally: serde_json::Value = serde_json::from_str(line)?;
    let seeds = tally["seeds"].as_u64().context("it does not say how many seeds it ran")?;
    Ok(tally["broken"].as_str().map(|what| (seeds, what.to_owned())))
}

/// Copies the files that git tracks to a separate folder, which keeps its builds.
fn copy_workspace() -> Result<PathBuf> {
    let root = workspace::root();
    let copy = root.join("target/mutants");
    let listed = workspace::command("git").args(["ls-files", "-z"]).output().context("cannot start git")?;
    ensure!(listed.status.success(), "git ls-files: {}", listed.status);
    for name in String::from_utf8(listed.stdout)?.split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root.join(name), copy.join(name));
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        // Copies only changed files, so that only those are rebuilt.
        let content = fs::read(&from).with_context(|| format!("cannot read {name}"))?;
        if fs::read(&to).ok().as_ref() != Some(&content) {
            fs::write(&to, content)?;
        }
    }
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_fits_the_source_as_it_is() {
        for mutant in all() {
            let source = fs::read_to_string(workspace::root().join(mutant.file)).unwrap();
            assert_ne!(mutated(&source, mutant).unwrap(), source, "{}", mutant.name);
        }
    }
}
