//! The tasks of the simulated nodes: trees of states, of which each task holds some. Every state has a unique
//! number, so that the invariants can observe which states were visited, where, and how often.

pub(crate) mod companion;
mod shapes;
pub(crate) mod tour;
pub(crate) mod workflow;

use std::{cell::RefCell, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use taskwork::{Context, Hooks, Outcome, Task, Variable, Variables, companion::Companion};

pub(crate) use self::shapes::{Shape, State, mix};
use self::tour::Tour;

/// A part of a tree: its open states, the shallowest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Walk {
    open: Vec<State>,
    /// The roots of the parts that it has spawned and will wait for.
    awaited: Vec<State>,
    /// Whether it has started to wait for them.
    waits: bool,
}

/// The action of a walk after a state of a tree that [forks](Shape::forks).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fork {
    /// It spawns all of the state's children and waits for them.
    All,
    /// It spawns one child, for which it waits at its end, or when it waits for another reason.
    Later,
    /// It spawns one child without waiting for it; walks that wait for this walk also wait for the child.
    Never,
    /// As `Never`, with a sibling instead of a child.
    Sibling,
    /// It waits for an external event.
    Outside,
    No,
}

/// The time until the external event of a waiting walk.
const OUTSIDE: Duration = Duration::from_millis(30);

/// The output of a walk: the number of visited states, and the sum of their numbers, which detects a wrong
/// state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) states: u64,
    pub(crate) sum: u64,
}

impl taskwork::Output for Done {
    fn merge(&mut self, other: Self) {
        self.states += other.states;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

impl Done {
    pub(crate) fn without(self, part: Self) -> Self {
        Self { states: self.states - part.states, sum: self.sum.wrapping_sub(part.sum) }
    }
}

/// The length of the shortest tour known.
pub(crate) struct Shortest;

impl Variable for Shortest {
    type Value = u64;
    const NAME: &'static str = "shortest";

    fn improves(new: &u64, old: &u64) -> bool {
        new < old
    }
}

/// The effects of a slice of work.
#[derive(Debug, Default)]
pub(crate) struct Slice {
    pub(crate) opened: Vec<u64>,
    pub(crate) consumed: Vec<u64>,
    /// The roots of the parts for which the task has waited.
    pub(crate) joined: Vec<State>,
    /// Whether it has killed its machine.
    pub(crate) deadly: bool,
    left: usize,
}

/// The panic message of a deadly state.
pub(crate) const DEADLY: &str = "a deadly state";

thread_local! {
    static SLICE: RefCell<Slice> = RefCell::new(Slice::default());
}

/// Runs a task for this many states and returns the effects.
pub(crate) fn slice(states: usize, run: &mut dyn FnMut()) -> Slice {
    SLICE.set(Slice { left: states, ..Slice::default() });
    run();
    SLICE.take()
}

impl Walk {
    fn of(open: Vec<State>) -> Self {
        Self { open, awaited: Vec::new(), waits: false }
    }

    pub(crate) fn root(shape: &Shape) -> Self {
        Self::of(vec![shape.root()])
    }

    /// Returns the root task with this number that is added to a job: a separate tree.
    pub(crate) fn added(shape: &Shape, number: u64) -> Self {
        Self::of(vec![shape.root_numbered(number)])
    }

    /// Returns its open states.
    pub(crate) fn open(&self) -> &[State] {
        &self.open
    }

    /// Creates a task that was never split off from another one.
    pub(crate) fn forged() -> Self {
        Self::of(vec![State { number: 0xbad, depth: 60, seed: 0, path: Vec::new() }])
    }
}

impl Walk {
    /// Spawns some of the children of the state that was visited. Returns whether the walk waits now.
    fn fork(&mut self, cx: &mut Context<'_, Self>, fork: Fork, children: &mut Vec<State>) -> bool {
        match fork {
            Fork::All => {
                for child in children.drain(..) {
                    self.awaited.push(child.clone());
                    cx.spawn(Self::of(vec![child]));
                }
                self.waits = true;
                return true;
            }
            Fork::Later | Fork::Never => {
                let Some(child) = children.pop() else { return false };
                if fork == Fork::Later {
                    self.awaited.push(child.clone());
                }
                cx.spawn(Self::of(vec![child]));
            }
            Fork::Sibling => {
                let Some(child) = children.pop() else { return false };
                cx.spawn_sibling(Self::of(vec![child]));
            }
            Fork::Outside => {
                let waker = cx.waker();
                tokio::spawn(async move {
                    tokio::time::sleep(OUTSIDE).await;
                    waker.wake();
                });
                return true;
            }
            Fork::No => {}
        }
        false
    }
}

impl Task for Walk {
    type Shared = Shape;
    type Output = Done;
    const HOOKS: Hooks<Self> = Hooks::<Self>::new()
        .companion(|shape| shape.has_companions().then(|| Companion::new(Arc::new(()), companion::run)));

    fn variables(declare: &mut Variables) {
        declare.declare::<Shortest>();
    }

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        if self.waits {
            SLICE.with_borrow_mut(|slice| slice.joined.append(&mut self.awaited));
            self.waits = false;
        }
        while let Some(state) = self.open.last() {
            if cx.migrate() {
                return Outcome::Migrate;
            }
            // This ends the slice, not the task.
            let over = SLICE.with_borrow_mut(|slice| {
                let over = slice.left == 0;
                slice.left = slice.left.saturating_sub(1);
                over
            });
            if over {
                return Outcome::Migrate;
            }
            let number = state.number;
            if let Shape::Deadly { state: deadly, panics, .. } = *cx.shared()
                && number == deadly
            {
                assert!(!panics, "{DEADLY}");
                SLICE.with_borrow_mut(|slice| slice.deadly = true);
                return Outcome::Migrate;
            }
            let Some(state) = self.open.pop() else { break };
            let shortest = cx.get_var::<Shortest>().copied();
            let mut children = match cx.shared() {
                Shape::Tour(tour) => {
                    let (found, children) = tour.branch(&state, shortest);
                    if let Some(length) = found {
                        cx.set_var::<Shortest>(length);
                    }
                    children
                }
                shape => shape.children(&state),
            };
            SLICE.with_borrow_mut(|slice| {
                slice.consumed.push(number);
                slice.opened.extend(children.iter().map(|child| child.number));
            });
            let done = cx.output();
            done.states += 1;
            done.sum = done.sum.wrapping_add(number);
            cx.worked(1);
            let fork = if children.is_empty() { Fork::No } else { cx.shared().fork(number) };
            let waits = self.fork(cx, fork, &mut children);
            self.open.extend(children);
            if waits {
                return Outcome::Wait;
            }
            cx.potential_split(self);
        }
        self.waits = !self.awaited.is_empty();
        if self.waits { Outcome::Wait } else { Outcome::Complete }
    }

    fn split(&mut self, shape: &Shape) -> Option<Self> {
        let shallowest = self.open.first().filter(|_| self.open.len() > 1)?;
        let refuses = matches!(shape, Shape::Refusing { .. }) && shallowest.number % 8 != 0;
        // In a star all states are alike, and numerous.
        let first = if matches!(shape, Shape::Star { .. }) { self.open.len() - 1 } else { 0 };
        (!refuses).then(|| Self::of(vec![self.open.remove(first)]))
    }
}

/// The expected result of a whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Truth {
    /// Exactly this output.
    Done(Done),
    /// This shortest length, whatever the output.
    Shortest(u64),
    /// The result of a workflow, which has its own rules.
    Returned,
}

/// Returns the number of states that a single worker visits, or of calls.
pub(crate) fn states(shape: &Shape) -> u64 {
    if let Shape::Workflow(recipe) = shape {
        return recipe.calls() as u64;
    }
    let Shape::Tour(tour) = shape else {
        let mut open = vec![shape.root()];
        let mut states = 0;
        while let Some(state) = open.pop() {
            states += 1;
            open.extend(shape.children(&state));
        }
        return states;
    };
    let (mut states, mut open, mut shortest) = (0, vec![shape.root()], None);
    while let Some(state) = open.pop() {
        states += 1;
        let (found, children) = tour.branch(&state, shortest);
        shortest = found.into_iter().chain(shortest).min();
        open.extend(children);
    }
    states
}

/// Computes the result with a sequential loop.
pub(crate) fn truth(shape: &Shape) -> Truth {
    if let Shape::Tour(tour) = shape {
        return Truth::Shortest(Tour::shortest(tour));
    }
    if let Shape::Workflow(_) = shape {
        return Truth::Returned;
    }
    Truth::Done(whole(shape, shape.root()))
}

/// Returns the states of the tree with this root.
pub(crate) fn whole(shape: &Shape, root: State) -> Done {
    let (mut done, mut open) = (Done::default(), vec![root]);
    while let Some(state) = open.pop() {
        done.states += 1;
        done.sum = done.sum.wrapping_add(state.number);
        open.extend(shape.children(&state));
    }
    done
}
