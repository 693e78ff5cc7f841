//! Programs with a small mistake, and the check that finds each, with its message.
//!
//! All are the same knapsack of four items, correct but for one mistake.

use std::{collections::VecDeque, ops::Range};

use bnb_framework::{
    Children, Collect, Goal, Hooks, InPlace as Steps, Moves, NotNan, OrderedFloat, Problem, Replicable,
    Solver, Strategy, Tree, check, sequential,
};
use serde::{Deserialize, Serialize};

/// The mistake of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Wrong {
    Nothing,
    /// Each bound is below the best value.
    Bound,
    /// The same, only where two items are decided.
    InnerBound,
    /// The bound excludes solutions where three items are decided.
    NoSolution,
    NanLeaf,
    NanBound,
    CostOf,
    /// A table of the problem is not serialised.
    SkippedTable,
    /// A part of the state is not serialised.
    SkippedState,
    /// The children depend on how often the function was called.
    Branch,
    QuickBound,
    /// The program panics where two items are decided.
    Panic,
}

const ITEMS: [(u32, u32); 4] = [(8, 4), (9, 5), (6, 4), (5, 5)];
const CAPACITY: u32 = 9;
/// The value of the best packing: the first two items.
const BEST: f64 = 17.0;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Knapsack {
    wrong: Wrong,
    table: Vec<(u32, u32)>,
    #[serde(skip)]
    skipped: Vec<(u32, u32)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Packing {
    taken: Vec<bool>,
    value: u32,
    room: u32,
    #[serde(skip)]
    skipped_room: u32,
}

impl Knapsack {
    fn new(wrong: Wrong) -> Self {
        Self { wrong, table: ITEMS.to_vec(), skipped: ITEMS.to_vec() }
    }

    fn items(&self) -> &[(u32, u32)] {
        if self.wrong == Wrong::SkippedTable { &self.skipped } else { &self.table }
    }
}

impl Tree for Knapsack {
    type State = Packing;
    type Children = VecDeque<Packing>;

    fn root(&self) -> Packing {
        Packing { taken: vec![], value: 0, room: CAPACITY, skipped_room: CAPACITY }
    }

    fn branch(&self, state: &mut Packing) -> VecDeque<Packing> {
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let Some(&(value, weight)) = self.items().get(state.taken.len()) else { return VecDeque::new() };
        assert!(self.wrong != Wrong::Panic || state.taken.len() != 2, "an index is out of bounds");
        let room = if self.wrong == Wrong::SkippedState { state.skipped_room } else { state.room };
        let child = |take: bool| {
            let taken = state.taken.iter().copied().chain([take]).collect();
            let (gain, load) = if take { (value, weight) } else { (0, 0) };
            Packing { taken, value: state.value + gain, room: room - load, skipped_room: room - load }
        };
        let mut children: VecDeque<Packing> =
            (weight <= room).then(|| child(true)).into_iter().chain([child(false)]).collect();
        if self.wrong == Wrong::Branch && CALLS.fetch_add(1, Relaxed) % 2 == 1 {
            children.pop_back();
        }
        children
    }
}

impl Problem for Knapsack {
    type Cost = OrderedFloat<f64>;
    type Solution = Vec<bool>;
    const GOAL: Goal = Goal::Maximise;
    const HOOKS: Hooks<Self> = Hooks::<Self>::new().quick_bound(|knapsack, state, best| {
        let bound = knapsack.bound(state, best);
        if knapsack.wrong == Wrong::QuickBound { bound.map(|bound| bound - 10.0) } else { bound }
    });

    fn leaf(&self, state: &Packing) -> Option<OrderedFloat<f64>> {
        let is_leaf = state.taken.len() == self.items().len();
        let is_nan = self.wrong == Wrong::NanLeaf && state.value == 14;
        is_leaf.then(|| OrderedFloat(if is_nan { f64::NAN } else { f64::from(state.value) }))
    }

    fn bound(&self, state: &mut Packing, _: Option<OrderedFloat<f64>>) -> Option<OrderedFloat<f64>> {
        let decided = state.taken.len();
        let left: u32 = self.items()[decided..].iter().map(|item| item.0).sum();
        let sum = f64::from(state.value + left);
        match self.wrong {
            Wrong::Bound => Some(OrderedFloat(sum / 2.0)),
            Wrong::InnerBound if decided == 2 => Some(OrderedFloat(sum / 2.0)),
            Wrong::NoSolution if decided == 3 => None,
            Wrong::NanBound if decided == 3 => Some(OrderedFloat(f64::NAN)),
            _ => Some(OrderedFloat(sum)),
        }
    }

    fn solution(&self, leaf: &Packing) -> Vec<bool> {
        leaf.taken.clone()
    }

    fn cost_of(&self, taken: &Vec<bool>) -> Option<OrderedFloat<f64>> {
        let items = ITEMS.iter().zip(taken).filter(|(_, taken)| **taken);
        let value: u32 = items.map(|(item, _)| item.0).sum();
        let more = u32::from(self.wrong == Wrong::CostOf);
        Some(OrderedFloat(f64::from(value + more)))
    }
}

/// Returns the message of a search that fails.
fn searched(wrong: Wrong) -> String {
    let solver = Solver::new(Knapsack::new(wrong)).workers(1);
    let solved = solver.run();
    solved.map(|solved| solved.best.map(|best| best.cost)).unwrap_err().to_string()
}

fn checked(wrong: Wrong) -> String {
    check(&Knapsack::new(wrong)).unwrap_err().to_string()
}

#[track_caller]
fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "no {part:?} in {message:?}");
    }
}

#[test]
fn panic_names_the_state_in_the_check_and_the_check_in_the_search() {
    assert_says(
        &searched(Wrong::Panic),
        &[
            "an index is out of bounds (bnb_framework::check, or the program's command check, names the state)",
        ],
    );
    let found = checked(Wrong::Panic);
    assert_says(
        &found,
        &["at depth 2, the program panics: an index is out of bounds. The state: {\"taken\":["],
    );
}

#[test]
fn correct_program_has_no_mistake() {
    let knapsack = Knapsack::new(Wrong::Nothing);
    check(&knapsack).unwrap();
    let solved = Solver::new(knapsack.clone()).workers(1).run().unwrap();
    assert_eq!(solved.best.map(|best| best.cost), Some(OrderedFloat(BEST)));
    taskwork::check::check_by(
        || Solver::new(knapsack.clone()).job().unwrap(),
        |report| {
            format!(
                "{:?}",
                report.var::<bnb_framework::lowlevel::Incumbent<Knapsack>>().map(|best| best.cost)
            )
        },
    )
    .unwrap();
}

#[test]
fn inadmissible_bound_fails_every_kind_of_search() {
    let parts = ["of cost 17.0", "bound", "bound() is not a bound"];
    assert_says(&searched(Wrong::Bound), &["a solution of cost", "found", "bound() is not a bound"]);
    let inner = searched(Wrong::InnerBound);
    assert_says(&inner, &parts);
    assert_says(&inner, &["below a state whose bound is 14.0", r#""taken":[true,true]"#]);
    let solver = || Solver::new(Knapsack::new(Wrong::Bound)).workers(1);
    let collect = Collect { at_most: 3, within: None };
    let replicable = Replicable { first_states: 3, parts: 2, batch: 2 };
    for solver in [
        solver().strategy(Strategy::BestFirst { open_max: 100 }),
        solver().strategy(Strategy::BestChildFirst { open_max: 1 }),
        solver().collect(collect),
        solver().replicable(replicable),
        solver().nodes(2),
        solver().heuristics(0.0),
    ] {
        let message = solver.run().map(|solved| solved.best).unwrap_err().to_string();
        assert_says(&message, &["bound() is not a bound"]);
    }
    let message = sequential::try_solve(&Knapsack::new(Wrong::Bound), true, None).unwrap_err();
    assert_says(&message, &["bound() is not a bound"]);
    // Without pruning, nothing asks for a bound.
    let solved = Solver::new(Knapsack::new(Wrong::Bound)).pruning(false).run().unwrap();
    assert_eq!(solved.best.map(|best| best.cost), Some(OrderedFloat(BEST)));
    assert_says(&checked(Wrong::Bound), &["at depth", "bound() is", "but below it", "is a solution of cost"]);
}

#[test]
fn start_better_than_the_bound_of_the_root_fails_the_search() {
    let solver = Solver::new(Knapsack::new(Wrong::Nothing)).workers(1);
    let solved = solver.start(OrderedFloat(90.0), vec![true; 4]).run();
    let message = solved.map(|solved| solved.best).unwrap_err().to_string();
    assert_says(
        &message,
        &[
            "a solution of cost 90.0 was found, but the bound of the root is 28.0: bound() is not a bound, or the cost",
        ],
    );
}

#[test]
fn solution_below_a_state_without_one_is_found_by_the_check() {
    assert_says(
        &checked(Wrong::NoSolution),
        &["at depth 3, bound() says that there is no solution, but below it"],
    );
}

#[test]
fn cost_that_is_not_a_number_fails_the_search_and_the_check() {
    assert_says(&searched(Wrong::NanLeaf), &["leaf() returned a cost that is not a number", "prefer NotNan"]);
    assert_says(
        &searched(Wrong::NanBound),
        &["bound() returned a cost that is not a number", "prefer NotNan"],
    );
    assert_says(&checked(Wrong::NanLeaf), &["leaf() returns a cost that is not a number: prefer NotNan"]);
    assert_says(&checked(Wrong::NanBound), &["at depth 3, bound()", "not a number: prefer NotNan"]);
    assert!(NotNan::new(f64::NAN).is_err());
}

#[test]
fn wrong_cost_of_is_found_by_the_check() {
    assert_says(
        &checked(Wrong::CostOf),
        &["leaf() is 17.0, but cost_of() is 18.0, of [true, true, false, false]"],
    );
}

#[test]
fn skipped_table_shows_on_one_machine_and_in_the_check() {
    // The decoded problem has no items: the root is a leaf.
    let solved = Solver::new(Knapsack::new(Wrong::SkippedTable)).workers(1).run().unwrap();
    assert_eq!(solved.best.map(|best| best.cost), Some(OrderedFloat(0.0)), "as on a cluster");
    assert_says(
        &checked(Wrong::SkippedTable),
        &["at depth 0", "on a node that the problem and the state were sent to"],
    );
}

#[test]
fn skipped_state_is_found_by_both_checks() {
    assert_says(
        &checked(Wrong::SkippedState),
        &["at depth 0, the children are others on a node", "#[serde(skip)]"],
    );
    let message = taskwork::check::check_by(
        || Solver::new(Knapsack::new(Wrong::SkippedState)).job().unwrap(),
        |report| {
            format!(
                "{:?}",
                report.var::<bnb_framework::lowlevel::Incumbent<Knapsack>>().map(|best| best.cost)
            )
        },
    );
    assert_says(&message.unwrap_err().to_string(), &["are sent to another node"]);
}

#[test]
fn branch_that_is_not_deterministic_is_found_by_the_check() {
    assert_says(&checked(Wrong::Branch), &["branch() returns other children the second time", "missing"]);
}

#[test]
fn quick_bound_that_is_none_is_found_by_the_check_and_the_search() {
    assert_says(&checked(Wrong::QuickBound), &["quick_bound() is", "but below it"]);
    assert_says(&searched(Wrong::QuickBound), &["is not a bound"]);
}

/// Paths of digits in place, with one mistake.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Digits {
    wrong: InPlace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum InPlace {
    Nothing,
    /// The sum is not restored.
    Ascend,
    /// The middle child is in neither part.
    Split,
    Count,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Path {
    digits: Vec<u8>,
    sum: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Left {
    digits: Range<u8>,
    wrong: InPlace,
}

impl Tree for Digits {
    type State = Path;
    type Children = Left;

    fn root(&self) -> Path {
        Path { digits: vec![], sum: 0 }
    }

    fn branch(&self, _: &mut Path) -> Left {
        Left { digits: 0..4, wrong: self.wrong }
    }
}

impl Children<Digits> for Left {
    type Step = Moves;

    fn next(&mut self, tree: &Digits, parent: &Path) -> Option<Path> {
        let mut child = parent.clone();
        self.descend(tree, &mut child).then_some(child)
    }

    fn split(&mut self, _: &Digits, _: &Path) -> Option<Self> {
        let Range { start, end } = self.digits;
        let middle = start + (end - start) / 2;
        self.digits.end = middle;
        let from = middle + u8::from(self.wrong == InPlace::Split);
        (middle < end).then_some(Self { digits: from..end, ..*self })
    }

    fn count(&self, _: &Digits, _: &Path) -> u64 {
        self.digits.len() as u64 + u64::from(self.wrong == InPlace::Count)
    }
}

impl Steps<Digits> for Left {
    fn descend(&mut self, _: &Digits, path: &mut Path) -> bool {
        let Some(digit) = self.digits.next() else { return false };
        path.digits.push(digit);
        path.sum += u32::from(digit);
        true
    }

    fn ascend(&self, _: &Digits, path: &mut Path) {
        let digit = path.digits.pop().unwrap_or_default();
        if self.wrong != InPlace::Ascend {
            path.sum -= u32::from(digit);
        }
    }
}

impl Problem for Digits {
    type Cost = u32;
    type Solution = Vec<u8>;

    fn leaf(&self, path: &Path) -> Option<u32> {
        (path.digits.len() == 3).then_some(path.sum)
    }

    fn bound(&self, path: &mut Path, _: Option<u32>) -> Option<u32> {
        Some(path.sum)
    }

    fn solution(&self, path: &Path) -> Vec<u8> {
        path.digits.clone()
    }
}

#[test]
fn mistakes_in_children_are_found_by_the_check() {
    let checked = |wrong| check(&Digits { wrong });
    checked(InPlace::Nothing).unwrap();
    let message = |wrong| checked(wrong).unwrap_err().to_string();
    assert_says(&message(InPlace::Ascend), &["at depth 0", "by next(), but", "by descend(), after ascend()"]);
    assert_says(&message(InPlace::Split), &["after split(), the children that stay and those split off"]);
    assert_says(&message(InPlace::Count), &["count() is 5, but next() returns 4 children"]);
}
