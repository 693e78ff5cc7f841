//! The search loop of the paper's figure 4, as a task of the runtime.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};
use taskwork::{Context, Hooks, Outcome, Task, Variables, lowlevel::Suggested};

use crate::{
    agenda::Agenda,
    collected::Shortlist,
    cost::{Cost, Goal},
    frontier::{Frontier, Searched, Unvisited},
    grain::{self, PATIENCE, Reach, Timing},
    heuristics,
    incumbent::{Best, Incumbent},
    instance::Instance,
    limits::{Halt, Spending},
    mistake::resume_with_remedy,
    options::{Options, Split, Strategy, Tolerance},
    parts::{Parts, Stopped},
    problem::Problem,
    tally::Tally,
    worker::{PLAIN, RULED, WHOLE, Worker},
};

/// A part of the tree to be searched.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct SearchTask<P: Problem> {
    open: Open<P>,
    /// The share of the whole tree that was open here at the last estimate.
    share_left: f64,
    /// A bound on the open part of this task, as a number; smaller is better.
    outlook: Option<f64>,
    /// Its place among the tasks of a node.
    order: u64,
    /// The number of splits between the root and this task.
    splits: u16,
    /// The bound of the root of the tree, if this task knows it.
    top: Option<P::Cost>,
    /// The number of parts that were split off here, on this node.
    #[serde(skip)]
    gave: u32,
    /// The part that a split may take now.
    #[serde(skip)]
    reach: Reach,
}

/// The maximum number of parts of a replicable search that are spawned together.
const BATCH_MAX: usize = 4096;

/// The part that is split off.
#[derive(Debug, Clone, Copy)]
enum Part {
    InOrder(Reach),
    State,
    Half,
}

/// The open states, in the form that suits the order in which they are searched.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
enum Open<P: Problem> {
    DepthFirst(Frontier<P>),
    Ordered(Agenda<P>),
    Replicable(Parts<P>),
}

impl<P: Problem> SearchTask<P> {
    /// Creates the task of the whole tree.
    pub fn root(instance: &Instance<P>) -> Self {
        let Instance { problem, options, .. } = instance;
        // If everything is visited, no order is better than another.
        let open = match (options.replicable, options.strategy) {
            _ if !options.pruning => Open::DepthFirst(Frontier::new(problem)),
            (Some(replicable), _) => Open::Replicable(Parts::new(problem, replicable)),
            (None, Strategy::DepthFirst) => Open::DepthFirst(Frontier::new(problem)),
            (None, _) => Open::Ordered(Agenda::new(problem)),
        };
        Self::of(open, 1.0)
    }

    fn of(open: Open<P>, share_left: f64) -> Self {
        Self {
            open,
            share_left,
            outlook: None,
            order: 0,
            splits: 0,
            top: None,
            gave: 0,
            reach: Reach::Anything,
        }
    }

    fn run<const KIND: u8>(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        let instance = cx.shared();
        let mut worker = Worker::<P, KIND>::new(cx, instance);
        if self.outlook.is_none() {
            worker.takes_stock_soon();
        }
        worker.begin_below(self.top, self.splits == 0 && self.top.is_none());
        let mut timing = Timing::begin(self.open.unbegun_depth().filter(|_| self.splits > 0));
        let outcome = loop {
            if let Some(halt) = worker.halts() {
                self.give_up(instance, &mut worker, halt);
                break Outcome::Complete;
            }
            let stopped = self.open.search(instance, &mut worker);
            timing.leave_out(worker.make_round(&instance.problem));
            self.top = worker.top();
            if let Some(mistake) = worker.look_for_mistakes(&instance.problem, self.open.path()) {
                worker.cx.fail(mistake);
                break Outcome::Complete;
            }
            match stopped {
                Stopped::Over => break Outcome::Complete,
                Stopped::AtFence => {
                    self.spawn_batch(instance, worker.cx);
                    break Outcome::Wait;
                }
                Stopped::Paused => {}
            }
            if worker.cx.migrate() {
                break Outcome::Migrate;
            }
            if worker.takes_stock() {
                let share = self.take_stock(instance, worker.cx);
                timing.take_stock(&instance.grain, share);
            }
            worker.hear();
            self.share_if_hungry(instance, worker.cx);
        };
        worker.end();
        timing.end(&instance.grain, (outcome == Outcome::Complete).then_some(self.share_left));
        if outcome == Outcome::Migrate {
            self.order = self.open.order(instance, self.splits);
        }
        if outcome == Outcome::Complete {
            worker.cx.progressed(self.share_left);
        }
        outcome
    }

    /// Spawns the next parts of a replicable search.
    fn spawn_batch(&mut self, instance: &Instance<P>, cx: &mut Context<'_, Self>) {
        let Open::Replicable(parts) = &mut self.open else { return };
        let batch = instance.options.replicable.map_or(1, |replicable| replicable.batch.min(BATCH_MAX));
        for (share_left, part) in parts.next_batch(&instance.problem, batch) {
            self.share_left -= share_left;
            cx.spawn(Self { top: self.top, ..Self::of(Open::Replicable(part), share_left) });
        }
    }

    /// Splits off a part if a worker is hungry.
    fn share_if_hungry(&mut self, instance: &Instance<P>, cx: &mut Context<'_, Self>) {
        if instance.options.split_off() != Split::InOrder {
            cx.potential_split(self);
            return;
        }
        let Some(hunger) = cx.hunger() else { return };
        self.reach = match hunger {
            _ if !hunger.here => Reach::Far,
            _ if hunger.lasts < PATIENCE => Reach::Near,
            _ => Reach::Anything,
        };
        cx.potential_split(self);
        // Other splits, such as for a node that leaves, may take any part.
        self.reach = Reach::Anything;
    }

    /// Reports how much of the tree was done since the last report, and returns it.
    fn take_stock(
        &mut self,
        Instance { problem, options, .. }: &Instance<P>,
        cx: &mut Context<'_, Self>,
    ) -> f64 {
        let left = self.open.share_left(problem);
        let done = self.share_left - left;
        cx.progressed(done);
        // An estimate that was too low is not corrected.
        self.share_left = self.share_left.min(left);
        let Options { pruning, tolerance, target, cutoff, .. } = options;
        if !pruning || *tolerance != Tolerance::NONE {
            // Either no part has a bound, or a part omitted because of the tolerance has a better one.
            return done;
        }
        let bound = self.open.bound(problem).map(|bound| {
            // Parts no better than these were not searched.
            [*target, *cutoff].into_iter().flatten().fold(bound, |a, b| P::GOAL.best(a, b))
        });
        let outlook = bound
            .and_then(Cost::as_number)
            .map(|bound| if P::GOAL == Goal::Minimise { bound } else { -bound });
        self.outlook = self.outlook.into_iter().chain(outlook).reduce(f64::max);
        cx.set_outlook(self.outlook);
        done
    }

    /// Completes the task although states are open: only their bounds remain.
    fn give_up<const KIND: u8>(
        &mut self,
        instance: &Instance<P>,
        worker: &mut Worker<'_, '_, P, KIND>,
        halt: Halt,
    ) {
        worker.cx.output().halt = Some(halt);
        worker.cx.leave_open(self.outlook);
        tracing::debug!(?halt, "a task ends before its end");
        if halt == Halt::Target || !instance.options.pruning {
            return;
        }
        let mut bounds = Vec::new();
        let problem = &instance.problem;
        self.open.open_states(problem, &mut |bound| bounds.push(bound), &mut |state| {
            worker.leave_state(problem, state);
        });
        for bound in bounds {
            worker.leave(bound);
        }
    }
}

impl<P: Problem> Open<P> {
    fn search<const KIND: u8>(
        &mut self,
        instance: &Instance<P>,
        worker: &mut Worker<'_, '_, P, KIND>,
    ) -> Stopped {
        let Instance { problem, options, .. } = instance;
        let searched = match self {
            Self::DepthFirst(frontier) => frontier.search(problem, worker),
            // Other orders are compiled once for each problem instead of three times.
            _ if const { KIND != RULED } => unreachable!("other orders are searched by the rules"),
            Self::Ordered(agenda) => agenda.search(problem, options.strategy, worker),
            Self::Replicable(parts) => {
                let parts_min = options.replicable.map_or(0, |replicable| replicable.parts);
                return parts.search(problem, parts_min, worker);
            }
        };
        match searched {
            Searched::Paused => Stopped::Paused,
            Searched::Over => Stopped::Over,
        }
    }

    /// Returns the part that is searched depth first: while it pauses at a solution, the path to it.
    fn path(&self) -> Option<&Frontier<P>> {
        match self {
            Self::DepthFirst(frontier) => Some(frontier),
            Self::Ordered(agenda) => agenda.dive(),
            Self::Replicable(parts) => parts.frontier(),
        }
    }

    /// Returns the depth of the start of the search if it has not visited any state.
    fn unbegun_depth(&self) -> Option<usize> {
        match self {
            Self::DepthFirst(frontier) => frontier.unbegun_depth(),
            _ => None,
        }
    }

    /// Returns the place of a task among those of a node.
    fn order(&mut self, Instance { problem, options, .. }: &Instance<P>, splits: u16) -> u64 {
        match self {
            Self::DepthFirst(frontier) => {
                grain::order(options.split_off(), frontier.next_place(problem), splits)
            }
            _ => 0,
        }
    }

    fn split(&mut self, instance: &Instance<P>, part: Part) -> Option<Self> {
        let Instance { problem, options, grain, .. } = instance;
        match self {
            Self::DepthFirst(frontier) => {
                let away = match part {
                    Part::InOrder(reach) => grain.split(frontier, problem, reach),
                    Part::State => frontier.split_state(problem),
                    Part::Half => frontier.split(problem),
                };
                away.map(Self::DepthFirst)
            }
            Self::Ordered(agenda) => agenda.split(problem, options.split_off()).map(Self::Ordered),
            // All that could be done elsewhere is spawned.
            Self::Replicable(_) => None,
        }
    }

    fn share_left(&mut self, problem: &P) -> f64 {
        match self {
            Self::DepthFirst(frontier) => frontier.share_left(problem),
            Self::Ordered(agenda) => agenda.share_left(problem),
            Self::Replicable(parts) => parts.share_left(problem),
        }
    }

    /// Returns a bound on everything that is open here, if it is cheap.
    fn bound(&mut self, problem: &P) -> Option<P::Cost> {
        match self {
            Self::DepthFirst(frontier) => frontier.bound(problem),
            Self::Ordered(agenda) => agenda.bound(problem),
            Self::Replicable(_) => None,
        }
    }

    /// Passes on the open part: the bounds of states that were visited but not branched, and all other states.
    fn open_states(
        &self,
        problem: &P,
        bounds: &mut dyn FnMut(P::Cost),
        tell: &mut dyn FnMut(Unvisited<&mut P::State>),
    ) {
        match self {
            Self::DepthFirst(frontier) => frontier.open_states(problem, tell),
            Self::Ordered(agenda) => agenda.open_states(problem, bounds, tell),
            Self::Replicable(parts) => parts.open_states(problem, bounds, tell),
        }
    }
}

impl<P: Problem> Task for SearchTask<P> {
    type Shared = Instance<P>;
    type Output = Tally<P>;
    const HOOKS: Hooks<Self> = Hooks::<Self>::new()
        .outlook(|task| task.outlook)
        .order(|task| task.order)
        .idle(heuristics::idle::make_round)
        .suggest(suggest);

    fn variables(declare: &mut Variables) {
        declare.declare::<Incumbent<P>>().declare::<Spending>().declare::<Shortlist<P>>();
    }

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        let searched = catch_unwind(AssertUnwindSafe(|| {
            let options = &cx.shared().options;
            match &self.open {
                Open::DepthFirst(_) if !options.pruning => self.run::<WHOLE>(cx),
                Open::DepthFirst(_) if options.is_plain() => self.run::<PLAIN>(cx),
                _ => self.run::<RULED>(cx),
            }
        }));
        searched.unwrap_or_else(|panic| resume_with_remedy(panic))
    }

    fn split(&mut self, instance: &Instance<P>) -> Option<Self> {
        let part = match instance.options.split_off() {
            Split::InOrder => Part::InOrder(self.reach),
            Split::Half => Part::Half,
            Split::Alternating if self.gave % 2 == 1 => Part::Half,
            Split::Next | Split::Alternating | Split::Discrepancy => Part::State,
        };
        let mut open = self.open.split(instance, part)?;
        self.gave = self.gave.wrapping_add(1);
        let share_left = open.share_left(&instance.problem).min(self.share_left);
        self.share_left -= share_left;
        let splits = self.splits.saturating_add(1);
        let order = open.order(instance, splits);
        let Self { outlook, top, .. } = *self;
        Some(Self { open, share_left, outlook, order, splits, top, gave: 0, reach: Reach::Anything })
    }
}

/// Accepts a solution if the problem can compute its cost.
fn suggest<P: Problem>(instance: &Instance<P>, given: serde_json::Value) -> Result<Suggested, String> {
    let Instance { problem, options, .. } = instance;
    if options.replicable.is_some() {
        return Err("the search is replicable: what it finds must not depend on what it is told".to_owned());
    }
    let solution =
        (P::HOOKS.read_solution)(problem, given).ok_or("it does not look like a solution of this problem")?;
    let cost = problem.cost_of(&solution).ok_or("it is no solution, or the program cannot tell")?;
    let said = |cost: P::Cost| format!("a solution of cost {cost:?}");
    let suggested = Suggested::of::<Incumbent<P>>(Best::new(cost, solution), said(cost));
    Ok(suggested.compared::<Incumbent<P>>(move |best| said(best.cost)))
}
