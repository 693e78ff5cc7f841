//! Looks for mistakes in a problem by random walks through its tree.

use std::{
    any::Any,
    error::Error,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    cost::Cost as _,
    mistake::{contradicts, panic_text, state_text},
    problem::Problem,
    tree::{COUNT_MAX, Children, Step as _, StepOf, Tree, is_in_place},
};

/// The number of walks from the root, and the maximum number of states that they visit together.
const WALKS: u64 = 100;
const STATES_MAX: usize = 20_000;
/// The maximum number of compared children of a state; further ones are not checked.
const CHILDREN_MAX: usize = 200;

/// A mistake in a problem, found by [`check`](check()): where, and which.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mistake {
    /// The number of branchings above the state.
    pub depth: usize,
    /// The mistake.
    pub reason: String,
    /// The state, in its serialised form.
    pub state: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { depth, reason, state } = self;
        write!(f, "at depth {depth}, {reason}. The state: {state}")
    }
}

impl Error for Mistake {}

/// Looks for mistakes in a problem, by random walks from the root to leaves; always the same ones. For unit tests, and
/// for the command `check` of every program. It takes some seconds at most, unless a bound takes milliseconds.
///
/// It finds
///
/// - a [bound](Problem::bound) that a solution below the state beats, or `None` although there is one, also of
///   [`quick_bound`](crate::Hooks::quick_bound);
/// - a [`leaf`](Problem::leaf) with a cost that differs from [`cost_of`](Problem::cost_of);
/// - costs that are not numbers;
/// - data lost when the problem, a state or its children are sent to another node (`#[serde(skip)]`);
/// - a [`branch`](Tree::branch) that returns other children the second time;
/// - a [`split`](Children::split) after which a child is missing, or there twice; a wrong
///   [`count`](Children::count), [`is_empty`](Children::is_empty) or [`is_single`](Children::is_single);
/// - a [`descend`](crate::InPlace::descend) or [`ascend`](crate::InPlace::ascend) that disagrees with [`next`](Children::next);
/// - a panic, with its state;
/// - siblings out of order if [`WORST_LAST`](Problem::WORST_LAST) is set.
///
/// A walk follows one path, so a mistake in few states may remain undetected. Use small instances, which the walks
/// cover completely.
///
/// # Errors
/// The mistake that is nearest to the root. A panic ends the walks.
pub fn check<P: Problem>(problem: &P) -> Result<(), Mistake> {
    walk_all(problem, |problem, random, states| Walk::new(problem)?.run_to_a_leaf(problem, random, states))
}

/// Looks for mistakes in a tree like [`check`](check()): for an [`Enumerate`](crate::Enumerate).
///
/// # Errors
/// The mistake that is nearest to the root. A panic ends the walks.
pub fn check_tree<T: Tree>(tree: &T) -> Result<(), Mistake> {
    walk_all(tree, |tree, random, states| {
        let sent: T = sent("the tree", tree).map_err(|reason| at(0, reason, &tree.root()))?;
        let (mut state, mut depth) = (tree.root(), 0);
        let walked = catch_unwind(AssertUnwindSafe(|| {
            loop {
                *states += 1;
                let listed = check_branch(tree, &sent, &state).map_err(|reason| at(depth, reason, &state))?;
                if listed.is_empty() || *states > STATES_MAX {
                    return Ok(());
                }
                let mut children = tree.branch(&mut state);
                (state, depth) = (choose(tree, &mut children, &state, random.below(listed.len())), depth + 1);
            }
        }));
        walked.unwrap_or_else(|panic| Err(panicked(&*panic, depth, &state, states)))
    })
}

fn walk_all<T>(
    tree: &T,
    walk: impl Fn(&T, &mut Random, &mut usize) -> Result<(), Mistake>,
) -> Result<(), Mistake> {
    let (mut found, mut states) = (None::<Mistake>, 0);
    for seed in 0..WALKS {
        if states > STATES_MAX {
            break;
        }
        if let Err(mistake) = walk(tree, &mut Random(seed), &mut states)
            && found
                .as_ref()
                .is_none_or(|found| (mistake.depth, mistake.state.len()) < (found.depth, found.state.len()))
        {
            found = Some(mistake);
        }
    }
    found.map_or(Ok(()), Err)
}

/// A bound on the path of a walk.
struct Bounded<P: Problem> {
    function: &'static str,
    bound: Option<P::Cost>,
    depth: usize,
    state: String,
}

struct Walk<P: Problem> {
    /// The problem as it is on another node.
    sent: P,
    state: P::State,
    depth: usize,
    path: Vec<Bounded<P>>,
}

impl<P: Problem> Walk<P> {
    fn new(problem: &P) -> Result<Self, Mistake> {
        let state = problem.root();
        let sent = sent("the problem", problem).map_err(|reason| at(0, reason, &state))?;
        Ok(Self { sent, state, depth: 0, path: Vec::new() })
    }

    fn run_to_a_leaf(mut self, problem: &P, random: &mut Random, states: &mut usize) -> Result<(), Mistake> {
        let walked = catch_unwind(AssertUnwindSafe(|| self.descend(problem, random, states)));
        walked.unwrap_or_else(|panic| Err(panicked(&*panic, self.depth, &self.state, states)))
    }

    fn descend(&mut self, problem: &P, random: &mut Random, states: &mut usize) -> Result<(), Mistake> {
        while *states <= STATES_MAX {
            *states += 1;
            if let Some(cost) = problem.leaf(&self.state) {
                return self.check_leaf(problem, cost);
            }
            self.check_bounds(problem)?;
            let here = |reason| at(self.depth, reason, &self.state);
            let listed = check_branch(problem, &self.sent, &self.state).map_err(here)?;
            check_in_place(problem, &self.state).map_err(here)?;
            check_order(problem, &self.state).map_err(here)?;
            if listed.is_empty() {
                return Ok(());
            }
            let mut children = problem.branch(&mut self.state);
            // Half of the walks follow the first child, as the search does, to where solutions are.
            let chosen = if random.below(2) == 0 { 0 } else { random.below(listed.len()) };
            self.state = choose(problem, &mut children, &self.state, chosen);
            self.depth += 1;
        }
        Ok(())
    }

    fn check_leaf(&self, problem: &P, cost: P::Cost) -> Result<(), Mistake> {
        let here = |reason| at(self.depth, reason, &self.state);
        if cost.is_nan() {
            return Err(here(
                "leaf() returns a cost that is not a number: prefer NotNan to OrderedFloat".to_owned(),
            ));
        }
        let solution = problem.solution(&self.state);
        if let Some(really) = problem.cost_of(&solution)
            && really != cost
        {
            return Err(here(format!("leaf() is {cost:?}, but cost_of() is {really:?}, of {solution:?}")));
        }
        let again: P::Solution = sent("a solution", &solution).map_err(here)?;
        if text(&again) != text(&solution) {
            return Err(here(format!(
                "a solution is another one when it was sent: {solution:?}, then {again:?}"
            )));
        }
        for Bounded { function, bound, depth, state } in &self.path {
            let below = format!(
                "but below it, at depth {}, is a solution of cost {cost:?}: {solution:?}",
                self.depth
            );
            let reason = match bound {
                None => format!("{function}() says that there is no solution, {below}"),
                Some(bound) if contradicts::<P>(cost, *bound) => {
                    format!("{function}() is {bound:?}, {below}")
                }
                Some(_) => continue,
            };
            return Err(Mistake { depth: *depth, reason, state: state.clone() });
        }
        Ok(())
    }

    fn check_bounds(&mut self, problem: &P) -> Result<(), Mistake> {
        let state = state_text(&self.state);
        let sent_state: P::State =
            sent("a state", &self.state).map_err(|reason| at(self.depth, reason, &self.state))?;
        let quick = (P::HOOKS.quick_bound)(problem, &mut self.state.clone(), None);
        let there = self.sent.bound(&mut sent_state.clone(), None);
        let bound = problem.bound(&mut self.state, None);
        if bound != there {
            let reason = format!(
                "bound() is {bound:?}, but {there:?} on a node that the problem and the state were sent to"
            );
            return Err(Mistake { depth: self.depth, reason, state });
        }
        for (function, bound) in [("bound", bound), ("quick_bound", quick)] {
            if bound.is_some_and(P::Cost::is_nan) {
                let reason = format!("{function}() is not a number: prefer NotNan to OrderedFloat");
                return Err(Mistake { depth: self.depth, reason, state });
            }
            self.path.push(Bounded { function, bound, depth: self.depth, state: state.clone() });
        }
        Ok(())
    }
}

/// Checks the children of a state, and returns them as text.
fn check_branch<T: Tree>(tree: &T, sent_tree: &T, state: &T::State) -> Result<Vec<String>, String> {
    let mut parent = state.clone();
    let children = tree.branch(&mut parent);
    let listed = list(tree, &children, &parent);
    let differ = |what: &str, others: &[String]| match first_difference(&listed, others) {
        None => Ok(()),
        Some(difference) => Err(format!("{what}: {difference}")),
    };
    let (mut again, mut there) = (state.clone(), sent::<T::State>("a state", state)?);
    let second = tree.branch(&mut again);
    differ("branch() returns other children the second time", &list(tree, &second, &again))?;
    let far = sent_tree.branch(&mut there);
    differ(
        "the children are others on a node that the problem and the state were sent to, as with #[serde(skip)]",
        &list(sent_tree, &far, &there),
    )?;
    let moved: T::Children = sent("the children", &children)?;
    differ("the children are others when they were sent to another node", &list(tree, &moved, &parent))?;
    let (count, known) = (children.count(tree, &parent), listed.len() as u64);
    if listed.len() < CHILDREN_MAX && count != known.min(COUNT_MAX) {
        return Err(format!("count() is {count}, but next() returns {known} children"));
    }
    if children.is_empty() && known > 0 {
        return Err(format!("is_empty() is true, but next() returns {known} children"));
    }
    if children.is_single(tree, &parent) && known != 1 {
        return Err(format!("is_single() is true, but next() returns {known} children"));
    }
    if listed.len() < CHILDREN_MAX {
        let mut left = children.clone();
        let Some(away) = left.split(tree, &parent) else {
            return if known == 0 {
                Ok(listed)
            } else {
                Err(format!("split() splits nothing off {known} children"))
            };
        };
        let mut parts = list(tree, &left, &parent);
        parts.extend(list(tree, &away, &parent));
        differ("after split(), the children that stay and those split off are not those before", &parts)?;
    }
    Ok(listed)
}

/// Checks that children in place are those that `next` returns.
fn check_in_place<P: Problem>(problem: &P, state: &P::State) -> Result<(), String> {
    if !is_in_place::<P>() {
        return Ok(());
    }
    // A state in place may keep unused data, so its results are compared, not its content.
    let says = |state: &mut P::State| {
        if let Some(cost) = problem.leaf(state) {
            return format!("a leaf of cost {cost:?}: {:?}", problem.solution(state));
        }
        let bound = problem.bound(state, None);
        let children = problem.branch(state);
        format!("{bound:?}, with {} children", children.count(problem, state))
    };
    let mut parent = state.clone();
    let mut left = problem.branch(&mut parent);
    let (mut moving, mut moves) = (parent.clone(), left.clone());
    for number in 0..CHILDREN_MAX {
        let next = left.next(problem, &parent);
        let descends = StepOf::<P>::descend(&mut moves, problem, &mut moving);
        let Some(mut child) = next else {
            return if descends {
                Err(format!("descend() finds child {number}, and next() does not"))
            } else {
                Ok(())
            };
        };
        if !descends {
            return Err(format!("next() returns child {number}, and descend() does not find it"));
        }
        let (by_next, in_place) = (says(&mut child), says(&mut moving));
        if by_next != in_place {
            return Err(format!(
                "child {number} is {by_next} by next(), but {in_place} by descend(), after ascend() from those before"
            ));
        }
        StepOf::<P>::ascend(&moves, problem, &mut moving);
    }
    Ok(())
}

/// Checks that no bound is better than that of a sibling visited before, if that is promised.
fn check_order<P: Problem>(problem: &P, state: &P::State) -> Result<(), String> {
    if !P::WORST_LAST {
        return Ok(());
    }
    let (mut parent, mut before) = (state.clone(), None);
    let mut children = problem.branch(&mut parent);
    for number in 0..CHILDREN_MAX {
        let Some(mut child) = children.next(problem, &parent) else { break };
        if problem.leaf(&child).is_some() {
            continue;
        }
        let bound = problem.bound(&mut child, None);
        let (Some(now), Some(worst)) = (bound, before) else {
            before = bound.or(before);
            continue;
        };
        if contradicts::<P>(now, worst) {
            return Err(format!(
                "WORST_LAST is set, but child {number} has the bound {now:?}, which is better than {worst:?} of a child \
                 before it"
            ));
        }
        before = Some(now);
    }
    Ok(())
}

fn choose<T: Tree>(tree: &T, children: &mut T::Children, parent: &T::State, number: usize) -> T::State {
    let mut nth = || children.next(tree, parent).expect("the children were listed just before");
    (0..number).for_each(|_| drop(nth()));
    nth()
}

fn list<T: Tree>(tree: &T, children: &T::Children, parent: &T::State) -> Vec<String> {
    let mut left = children.clone();
    (0..CHILDREN_MAX).map_while(|_| left.next(tree, parent)).map(|child| text(&child)).collect()
}

fn first_difference(expected: &[String], found: &[String]) -> Option<String> {
    let differ = (0..expected.len().max(found.len())).find(|&at| expected.get(at) != found.get(at))?;
    let show = |list: &[String]| list.get(differ).map_or_else(|| "missing".to_owned(), |one| shortened(one));
    let (expected, found) = (show(expected), show(found));
    Some(format!("child {differ} is {expected}, then {found}"))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns a value as it is on another node.
fn sent<V: Serialize + DeserializeOwned>(what: &str, value: &V) -> Result<V, String> {
    taskwork::check::sent(value).map_err(|error| format!("{what}, {}, {error}", std::any::type_name::<V>()))
}

/// Serializes a value for comparison.
fn text<V: Serialize>(value: &V) -> String {
    serde_json::to_value(value).map_or_else(
        |_| format!("{:?}", bincode::serde::encode_to_vec(value, bincode::config::standard())),
        |value| value.to_string(),
    )
}

/// Describes a panic, and ends the walks: each further panic would print its message.
fn panicked<S: Serialize>(panic: &(dyn Any + Send), depth: usize, state: &S, states: &mut usize) -> Mistake {
    *states = STATES_MAX + 1;
    at(depth, format!("the program panics: {}", panic_text(panic).unwrap_or("without a message")), state)
}

fn at<S: Serialize>(depth: usize, reason: String, state: &S) -> Mistake {
    Mistake { depth, reason, state: state_text(state) }
}

/// A sequence of numbers that is the same every time (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end.max(1) as u64).unwrap_or(0)
    }
}
