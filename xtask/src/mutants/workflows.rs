//! Bugs of workflows, for which only seeds with workflows are run.

use super::{Mutant, mutant};

/// The kinds of plans with workflows.
pub(super) const KINDS: &str = "workflow,leaves";

/// The number of seeds within which they must be found. One in 17 has such a plan.
pub(super) const SEEDS: u32 = 60_000;

/// The bugs.
pub(super) const MUTANTS: &[Mutant] = &[
    mutant(
        "report the job of a failed program as done",
        "taskwork/src/shell/coordination/leader.rs",
        "job::Outcome { result, shown, failure, incomplete",
        "job::Outcome { result, shown, failure: failure.filter(|_| false), incomplete",
    ),
    mutant(
        "forget a lost member only for calls without demands",
        "dataflow-framework/src/core/members.rs",
        "            for open in self.open.values_mut() {\n",
        "            for open in self.open.values_mut().take(1) {\n",
    ),
    mutant(
        "do not notify other nodes of the cancellation of their calls",
        "dataflow-framework/src/program/engine/performing.rs",
        "self.order(member, &Order::Cancel(call)),",
        "drop((member, call)),",
    ),
    mutant(
        "cancel only calls that have not started",
        "dataflow-framework/src/core/graph/stopping.rs",
        "        let Some(member) = self.data.runs_first(id) else { return };\n",
        "        let Some(member) = self.data.runs_first(id).filter(|_| false) else { return };\n",
    ),
    mutant(
        "forget the pause of a call after a restart of the program",
        "dataflow-framework/src/core/pauses.rs",
        "            data.actions.push(Action::Wake { root, call: id, failures, pause, until_us: Some(until_us) });\n",
        "            let _ = (root, pause, until_us);\n",
    ),
    mutant(
        "forget a version that a call still reads",
        "dataflow-framework/src/core/data/lineage.rs",
        "            if version.is_needed() || is_copied || is_awaited {\n",
        "            if version.handles > 0 || is_copied || is_awaited {\n",
    ),
    mutant(
        "accept the completion of a call from any node",
        "dataflow-framework/src/core/graph/outcomes.rs",
        "        if !self.data.runs_on(id, member) {\n            return self.ended_elsewhere",
        "        if !self.data.calls.contains_key(&id) {\n            return self.ended_elsewhere",
    ),
    mutant(
        "change in place a version with other readers",
        "dataflow-framework/src/core/data/lineage.rs",
        "version.readers == [call];",
        "version.readers.contains(&call);",
    ),
    mutant(
        "change in place a version with a handle",
        "dataflow-framework/src/core/data/lineage.rs",
        "let is_last = version.handles == 0 && !version.is_wanted",
        "let is_last = !version.is_wanted",
    ),
    mutant(
        "recompute a version without its inputs",
        "dataflow-framework/src/core/graph/losses.rs",
        "                    gone.push(*input);\n",
        "                    let _ = &gone;\n",
    ),
    mutant(
        "never repeat a lost message",
        "dataflow-framework/src/core/line.rs",
        "        if self.sent > 0 && now_ms >= self.moved_ms + REPEAT_MS {\n",
        "        if self.sent > 0 && now_ms == self.moved_ms + REPEAT_MS + u64::MAX / 2 {\n",
    ),
    mutant(
        "follow an earlier run of the program again",
        "dataflow-framework/src/cluster/workflow_node.rs",
        "                is_later(following.run) || is_lost\n",
        "                run.generation != following.run.generation || is_lost\n",
    ),
    mutant(
        "follow a partitioned coordinator",
        "dataflow-framework/src/cluster/workflow_node.rs",
        "state.nodes.contains(&coordinator) && run > known",
        "run > known",
    ),
    mutant(
        "continue on a forgotten line",
        "dataflow-framework/src/cluster/workflow_node.rs",
        "        if state.followed.contains(&(run, coordinator, line)) {\n",
        "        if state.followed.contains(&(run, coordinator, line)) && now_ms == u64::MAX {\n",
    ),
    mutant(
        "treat a connected coordinator as lost",
        "dataflow-framework/src/cluster/workflow_node.rs",
        "!state.nodes.contains(&following.coordinator) && !following.is_coordinator_heard(now_ms);",
        "!state.nodes.contains(&following.coordinator);",
    ),
    mutant(
        "remember only completions reported by the coordinator",
        "dataflow-framework/src/cluster/following.rs",
        "            lock(&self.memory).add_end(call);\n",
        "",
    ),
    mutant(
        "wait forever for a later run of the program",
        "dataflow-framework/src/cluster/workflow_node/program.rs",
        "            && now_ms >= since_ms + DEPOSED_MS\n",
        "            && now_ms >= since_ms + DEPOSED_MS + u64::MAX / 2\n",
    ),
    mutant(
        "wait forever for a run that has taken the journal",
        "dataflow-framework/src/cluster/workflow_node/program.rs",
        "            && leading.is_replaced()\n",
        "            && leading.is_replaced() && now_ms == u64::MAX\n",
    ),
    mutant(
        "let a node leave with data of calls that the program has not reached",
        "dataflow-framework/src/core/graph/losses.rs",
        "            self.data.rescue(id);\n        }\n        self.replay.rescue(&mut self.data);\n",
        "            self.data.rescue(id);\n        }\n",
    ),
    mutant(
        "let a node leave while copies are in progress",
        "dataflow-framework/src/core/data/copies.rs",
        "        self.copying.is_empty() && !self.is_preserving()\n",
        "        !self.is_preserving()\n",
    ),
    mutant(
        "let the last nodes leave before their data is written",
        "dataflow-framework/src/core/data/copies.rs",
        "        self.copying.is_empty() && !self.is_preserving()\n",
        "        self.copying.is_empty()\n",
    ),
    mutant(
        "let the coordinator leave while others leave",
        "dataflow-framework/src/program/engine.rs",
        "        state.records.is_empty() && state.graph.may_go_still()\n",
        "        state.records.is_empty()\n",
    ),
    mutant(
        "wait for the inputs of a turn before it has exchanged as before",
        "dataflow-framework/src/core/chains.rs",
        " && !self.awaited.contains_key(&call)\n",
        "\n",
    ),
    mutant(
        "let others leave by a dismissed coordinator",
        "dataflow-framework/src/cluster/leading.rs",
        "        if self.is_going.load(Relaxed) {\n",
        "        if self.is_going.load(Relaxed) && now_ms == u64::MAX {\n",
    ),
    mutant(
        "let the coordinator leave before it knows the data of others",
        "dataflow-framework/src/cluster/leading.rs",
        "now_ms < until_ms && !(self.is_journal_taken() && self.untold().is_empty())",
        "now_ms > until_ms",
    ),
    mutant(
        "start the program on a leaving node",
        "dataflow-framework/src/cluster/workflow_node/program.rs",
        "        if state.is_leaving {\n            leading.leave();\n        }\n",
        "",
    ),
    mutant(
        "give up copies that were not requested",
        "dataflow-framework/src/core/graph/losses.rs",
        "*member != Member::HERE && tried.contains(member)",
        "*member != Member::HERE",
    ),
    mutant(
        "give up data received with an order",
        "dataflow-framework/src/node/fetches.rs",
        "        let fetch = self.under_way.remove(&version)?;\n        Some(self.end_fetch(version, fetch))\n",
        "        let _ = version;\n        None\n",
    ),
    mutant(
        "name an object without offering it",
        "dataflow-framework/src/node/answers.rs",
        "                self.offer(version, name);\n",
        "",
    ),
    mutant(
        "read each part of an object from its start",
        "dataflow-framework/src/node/answers.rs",
        "value.part(offset, bytes_max)",
        "value.part(0 * offset, bytes_max)",
    ),
    mutant(
        "forget data that a call without room would have changed in place",
        "dataflow-framework/src/core/graph/outcomes.rs",
        "unchanged.iter().filter(|(version, _)| *version != missing)",
        "unchanged.iter().take(0)",
    ),
    mutant(
        "keep completions of other nodes from the coordinator",
        "dataflow-framework/src/core/journal/mod.rs",
        "        self.news.add(news);\n    }\n",
        "        let _ = news;\n    }\n",
    ),
    mutant(
        "copy a version once, and never again",
        "dataflow-framework/src/core/graph/losses.rs",
        "        self.data.rescue_kept(id);\n        self.replay.rescue_one(&mut self.data, id);\n",
        "",
    ),
    mutant(
        "leave with calls that have not started",
        "dataflow-framework/src/cluster/following.rs",
        "            self.say(&News::Returned { call, unchanged });\n        }\n    }\n",
        "            let _ = (call, unchanged);\n        }\n    }\n",
    ),
    mutant(
        "run completed calls again after a restart of the program",
        "dataflow-framework/src/core/journal/recording.rs",
        "(data.journal.history_has(id, within) && !is_made_again)",
        "(data.journal.history_has(id, within) && !is_made_again && has_failed)",
    ),
    mutant(
        "forget values that the program has read",
        "dataflow-framework/src/core/data/copies.rs",
        "        if !version.is_to_be_kept() || !self.calls.contains_key(&id.call) {\n            return Keeping::No;\n",
        "        if version.is_to_be_kept() || !self.calls.contains_key(&id.call) {\n            return Keeping::No;\n",
    ),
];
