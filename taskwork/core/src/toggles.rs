//! Ids to toggle in the global task list.
//!
//! Every id is toggled twice: when its parent completes, which makes it known, and when its own task
//! completes. If both halves are here, they cancel out and never reach `ZooKeeper`.
//!
//! A set that is too large for one transaction is divided, the parents' halves first. So as long as an own
//! half is not yet toggled, every child of that task is in the list or complete, and as long as a parent's
//! half is not toggled, the parent's own half is not either: the list is not empty before everything is complete.
//!
//! Among the parents' halves, waiting tasks come last, and none before the others in the scope that it waits for:
//! when such a task is in the list, so is everything in that scope, unless it is complete.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::scope::{Completed, Mark, Scope};

/// Ids to toggle, each once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Toggles {
    /// The parents' halves: children of completed tasks.
    children: BTreeSet<Mark>,
    /// The parents' halves of tasks that wait, or have waited, with the scopes that they wait for.
    waiting: BTreeMap<Mark, Scope>,
    /// The own halves: completed tasks.
    completed: BTreeSet<Mark>,
}

impl Toggles {
    /// Adds a completed task with the tasks that it names.
    pub fn add(&mut self, completed: &Completed<'_>) {
        self.add_completed(completed.own());
        completed.named().for_each(|child| self.add_child(child));
        completed.renewed().into_iter().for_each(|(renewed, scope)| self.add_waiting(renewed, scope));
    }

    /// Adds a completed task with the tasks that were split off from it.
    #[cfg(test)]
    pub fn complete(&mut self, id: crate::id::TaskId, children: &[crate::id::TaskId]) {
        self.add(&Completed::plain(id, children));
    }

    fn add_completed(&mut self, id: Mark) {
        if !self.children.remove(&id) && self.waiting.remove(&id).is_none() {
            let is_new = self.completed.insert(id);
            debug_assert!(is_new, "{id} is completed twice");
        }
    }

    fn add_child(&mut self, id: Mark) {
        if !self.completed.remove(&id) {
            self.children.insert(id);
        }
    }

    fn add_waiting(&mut self, id: Mark, scope: Scope) {
        if !self.completed.remove(&id) {
            self.waiting.insert(id, scope);
        }
    }

    pub fn merge(&mut self, other: Self) {
        other.completed.into_iter().for_each(|id| self.add_completed(id));
        other.children.into_iter().for_each(|id| self.add_child(id));
        other.waiting.into_iter().for_each(|(id, scope)| self.add_waiting(id, scope));
    }

    pub fn len(&self) -> usize {
        self.children.len() + self.waiting.len() + self.completed.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes the first ids in toggle order, at most `max`, and returns them.
    pub fn take(&mut self, max: usize) -> Vec<Mark> {
        let mut taken: Vec<Mark> = Vec::with_capacity(self.len().min(max));
        take_first(&mut self.children, max, &mut taken);
        self.take_waiting(max, &mut taken);
        take_first(&mut self.completed, max, &mut taken);
        taken
    }

    /// Moves waiting tasks, until `max` ids are taken: each before those that wait for the scope that it is in.
    fn take_waiting(&mut self, max: usize, taken: &mut Vec<Mark>) {
        if taken.len() >= max || self.waiting.is_empty() {
            return;
        }
        let mut within: BTreeMap<Scope, usize> = BTreeMap::new();
        let mut waiters: BTreeMap<Scope, Vec<Mark>> = BTreeMap::new();
        for (&id, &scope) in &self.waiting {
            id.scope.into_iter().for_each(|its| *within.entry(its).or_default() += 1);
            waiters.entry(scope).or_default().push(id);
        }
        let is_innermost = |(_, scope): &(&Mark, &Scope)| !within.contains_key(scope);
        let mut ready: VecDeque<Mark> = self.waiting.iter().filter(is_innermost).map(|(id, _)| *id).collect();
        while taken.len() < max {
            // Waits are acyclic, unless the input was not written by a node.
            let first = || self.waiting.keys().next().copied();
            let Some(id) = ready.pop_front().or_else(first) else { return };
            if self.waiting.remove(&id).is_none() {
                continue;
            }
            taken.push(id);
            if let Some(its) = id.scope
                && let Some(others) = within.get_mut(&its)
            {
                *others -= 1;
                if *others == 0 {
                    ready.extend(waiters.remove(&its).into_iter().flatten());
                }
            }
        }
    }
}

/// Moves the first ids, until `max` are taken.
fn take_first(ids: &mut BTreeSet<Mark>, max: usize, taken: &mut Vec<Mark>) {
    while taken.len() < max
        && let Some(id) = ids.pop_first()
    {
        taken.push(id);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        id::{NodeId, TaskId},
        scope::{Spawned, complete},
    };

    fn task(number: u64) -> TaskId {
        TaskId { node: NodeId(1), number }
    }

    #[test]
    fn family_completed_on_one_node_toggles_only_its_root() {
        let mut toggles = Toggles::default();
        toggles.complete(task(2), &[]);
        toggles.complete(task(1), &[task(2)]);
        toggles.complete(task(0), &[task(1)]);
        assert_eq!(toggles.take(9), [task(0)]);
    }

    #[test]
    fn parents_halves_are_toggled_first() {
        let mut toggles = Toggles::default();
        toggles.complete(task(1), &[task(7), task(8)]);
        assert_eq!(toggles.take(1), [task(7)]);
        assert_eq!(toggles.take(2), [task(8), task(1)]);
        assert!(toggles.is_empty());
    }

    /// A completed task in the test below, with all ids that its completion toggles.
    struct Step {
        id: u64,
        scope: Option<Scope>,
        children: Vec<TaskId>,
        renewed: Option<TaskId>,
        spawned: Spawned,
    }

    /// Returns the steps of a tree of tasks in which every task spawns its children and waits for them: it completes
    /// under its own number, and again under that number plus 1,000.
    fn forks(parents: &[usize]) -> Vec<Step> {
        let scope_of = |number: u64| Scope(task(10_000 + number));
        let in_scope = |number: usize| {
            let parent = number.checked_sub(1).map(|place| parents[place])?;
            Some(scope_of(parent as u64))
        };
        let mut steps = Vec::new();
        for number in 0..=parents.len() {
            let children = (1..=parents.len()).filter(|child| parents[child - 1] == number);
            let tasks: Vec<TaskId> = children.map(|child| task(child as u64)).collect();
            let (id, scope) = (number as u64, in_scope(number));
            let plain = Step { id, scope, children: Vec::new(), renewed: None, spawned: Spawned::Nothing };
            if tasks.is_empty() {
                steps.push(plain);
                continue;
            }
            let spawned = Spawned::Tasks { scope: scope_of(id), tasks };
            steps.push(Step { id: id + 1_000, scope, ..plain });
            steps.push(Step { id, scope, children: Vec::new(), renewed: Some(task(id + 1_000)), spawned });
        }
        steps
    }

    proptest! {
        /// A waiting task is in the list without a name of its scope only when everything in the scope is complete:
        /// tasks complete in any possible order, on a few nodes, each of which toggles a few ids
        /// at a time.
        #[test]
        fn scope_is_complete_when_the_list_shows_no_name_of_it(
            parents in prop::collection::vec(any::<prop::sample::Index>(), 1..25),
            order in prop::collection::vec(any::<prop::sample::Index>(), 200),
            nodes in 1_usize..4,
            max in 1_usize..4,
        ) {
            let parents: Vec<usize> =
                parents.iter().enumerate().map(|(child, parent)| parent.index(child + 1)).collect();
            let (mut steps, mut done) = (forks(&parents), BTreeSet::new());
            let mut list = BTreeSet::from([Mark::from(task(0))]);
            let mut owed = vec![Toggles::default(); nodes];
            let mut order = order.into_iter().cycle();
            // Everything below a task is complete when the task continues under its second number.
            let is_below = |below: usize, above: usize| {
                std::iter::successors(Some(below), |&at| at.checked_sub(1).map(|place| parents[place]))
                    .any(|at| at == above)
            };
            while !steps.is_empty() || owed.iter().any(|owed| !owed.is_empty()) {
                let node = order.next().unwrap().index(nodes);
                let names: Vec<String> = list.iter().map(Mark::to_string).collect();
                for step in &steps {
                    if let Some(first) = step.id.checked_sub(1_000) {
                        let first = usize::try_from(first).unwrap();
                        let waiting = Mark { scope: step.scope, task: task(step.id) };
                        let scope = Scope(task(10_000 + first as u64));
                        let is_said = !complete(&[(waiting, scope)], &names).is_empty();
                        let open = steps.iter().find(|other| {
                            let number = usize::try_from(other.id % 1_000).unwrap();
                            number != first && is_below(number, first)
                        });
                        prop_assert!(!is_said || open.is_none(), "{first}: {names:?}, {:?}", open.map(|it| it.id));
                    }
                }
                // A task runs after its parent has spawned it, and continues when all tasks below it are complete.
                let can_run = |step: &Step| {
                    let number = usize::try_from(step.id % 1_000).unwrap();
                    let known = number == 0 || done.contains(&(parents[number - 1] as u64));
                    known && (step.id < 1_000 || !steps.iter().any(|other| {
                        let below = usize::try_from(other.id % 1_000).unwrap();
                        other.id != step.id && is_below(below, number)
                    }))
                };
                let ready: Vec<usize> = (0..steps.len()).filter(|&place| can_run(&steps[place])).collect();
                let what = order.next().unwrap();
                if !ready.is_empty() && what.index(3) > 0 {
                    let Step { id, scope, children, renewed, spawned } =
                        steps.swap_remove(ready[what.index(ready.len())]);
                    done.insert(id);
                    let (children, spawned) = (&children[..], &spawned);
                    owed[node].add(&Completed { id: task(id), scope, children, renewed, spawned });
                } else {
                    for id in owed[node].take(max) {
                        if !list.remove(&id) {
                            list.insert(id);
                        }
                    }
                }
                prop_assert!(!list.is_empty() || steps.is_empty(), "{} tasks are left", steps.len());
            }
            prop_assert!(list.is_empty());
        }

        /// A random tree of tasks is completed in a random order on a few nodes, each of which toggles a few
        /// ids at a time.
        #[test]
        fn list_is_empty_only_at_the_end(
            parents in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
            order in prop::collection::vec(any::<prop::sample::Index>(), 200),
            nodes in 1_usize..4,
            max in 1_usize..4,
        ) {
            let mut children = vec![Vec::new(); parents.len() + 1];
            for (child, parent) in parents.iter().enumerate() {
                children[parent.index(child + 1)].push(task(child as u64 + 1));
            }
            let mut list = BTreeSet::from([Mark::from(task(0))]);
            let mut owed = vec![Toggles::default(); nodes];
            let mut left: Vec<usize> = (0..children.len()).collect();
            let mut order = order.into_iter().cycle();
            while !left.is_empty() || owed.iter().any(|owed| !owed.is_empty()) {
                prop_assert!(!list.is_empty(), "{} tasks are left, {:?} is owed", left.len(), owed);
                let node = order.next().unwrap().index(nodes);
                let what = order.next().unwrap();
                if !left.is_empty() && what.index(3) > 0 {
                    let done = left.swap_remove(what.index(left.len()));
                    owed[node].complete(task(done as u64), &children[done]);
                } else {
                    for id in owed[node].take(max) {
                        if !list.remove(&id) {
                            list.insert(id);
                        }
                    }
                }
            }
            prop_assert!(list.is_empty());
        }
    }
}
