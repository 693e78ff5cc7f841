//! Visits the states of a task, and exchanges solutions and spending with the other tasks.

use std::time::{Duration, Instant};

use taskwork::Context;

use crate::{
    agenda::{Assessed, Assessor},
    collected::Shortlist,
    cost::Cost,
    frontier::{Below, Unvisited, Visitor},
    heuristics::{ROUND, Rounds, round},
    incumbent::{Best, Incumbent},
    instance::Instance,
    limits::{Halt, Limits, Spending},
    mistake::{contradicts, may_compare, not_a_bound_of_all},
    options::{Options, Tolerance},
    problem::Problem,
    search::SearchTask,
    step::{Visit, visit},
};

mod assessing;
mod isolated;
mod mistakes;

/// Everything is visited.
pub(crate) const WHOLE: u8 = 0;
/// Prunes all states that cannot improve on the incumbent; no other option is active.
pub(crate) const PLAIN: u8 = 1;
/// Pruning depends on more than the incumbent.
pub(crate) const RULED: u8 = 2;

/// The runtime is polled at least once in this many states without children.
const ASK_STATES: u64 = 64;
/// The approximate time between two reports.
const REPORT_EVERY: Duration = Duration::from_millis(5);
/// The maximum number of states between two reports.
const REPORT_STATES_MAX: u64 = 1 << 20;
/// The interval at which the remaining share of the tree is estimated.
const TAKE_STOCK_EVERY: Duration = Duration::from_millis(200);

pub(crate) struct Worker<'a, 'b, P: Problem, const KIND: u8> {
    pub(crate) cx: &'a mut Context<'b, SearchTask<P>>,
    options: &'a Options<P::Cost>,
    /// The cost to prune by: only better solutions are of interest.
    limit: Option<P::Cost>,
    /// Whether solutions as good as the limit are of interest, too.
    inclusive: bool,
    /// The cost of the best solution known.
    best: Option<P::Cost>,
    /// The number of states since the last report.
    states: u64,
    pruned: u64,
    /// The number of states at which the next report is due.
    report_at: u64,
    reported: Instant,
    took_stock: Instant,
    takes_stock_every: Duration,
    stock_is_due: bool,
    limits: Option<Limits>,
    halt: Option<Halt>,
    /// If the search is replicable: the cost to prune by before anything is found, the position in the tree,
    /// and the number of states that may be visited before a pause.
    base: Option<(P::Cost, bool)>,
    found: Option<P::Cost>,
    rounds: &'a Rounds,
    /// The number of the round of heuristics that is due.
    round: Option<u64>,
    position: Vec<u32>,
    fences: Vec<Option<P::Cost>>,
    states_ahead: Option<u64>,
    /// The bound of the root of the tree, if this task knows it.
    top: Option<P::Cost>,
    /// Whether the next state is the root.
    is_at_top: bool,
    /// The bound of a state above the present one, if known: that of the task's root, or of the parent.
    above: Option<P::Cost>,
    /// The cost of a solution to compare with the bounds above it, and the number of bounds compared.
    new: Option<P::Cost>,
    compared: u64,
    mistake: Option<String>,
}

impl<'a, 'b, P: Problem, const KIND: u8> Worker<'a, 'b, P, KIND> {
    pub(crate) fn new(cx: &'a mut Context<'b, SearchTask<P>>, instance: &'a Instance<P>) -> Self {
        let options = &instance.options;
        let now = Instant::now();
        let mut worker = Self {
            cx,
            options,
            limit: None,
            inclusive: false,
            best: None,
            states: 0,
            pruned: 0,
            // The duration of a state is unknown yet.
            report_at: if options.time_limit_ms.is_some() || options.states_max.is_some() {
                1
            } else {
                ASK_STATES
            },
            reported: now,
            took_stock: now,
            takes_stock_every: TAKE_STOCK_EVERY,
            stock_is_due: false,
            limits: Limits::new(options.time_limit_ms, options.states_max, &instance.stopwatch, now),
            halt: None,
            base: None,
            found: None,
            rounds: &instance.rounds,
            round: None,
            position: Vec::new(),
            fences: Vec::new(),
            states_ahead: None,
            top: None,
            is_at_top: false,
            above: None,
            new: None,
            compared: 0,
            mistake: None,
        };
        if KIND == RULED && options.replicable.is_some() {
            let (limit, inclusive) = worker.limit_by_rule();
            worker.base = limit.map(|limit| (limit, inclusive));
        }
        worker.hear();
        if let Some(limits) = &worker.limits {
            worker.halt = worker.halt.or(limits.halts(worker.cx.node(), worker.cx.worked_here(), now));
        }
        worker
    }

    /// Returns why the search must end here, if it must.
    pub(crate) fn halts(&self) -> Option<Halt> {
        self.halt
    }

    /// Returns whether it is time to estimate how much is left, and resets that.
    pub(crate) fn takes_stock(&mut self) -> bool {
        std::mem::take(&mut self.stock_is_due)
    }

    /// Makes the next report request an estimate of how much is left.
    pub(crate) fn takes_stock_soon(&mut self) {
        self.takes_stock_every = Duration::ZERO;
    }

    /// Applies the solutions and the spending announced by other tasks.
    pub(crate) fn hear(&mut self) {
        self.best = self.cx.get_var::<Incumbent<P>>().map(|best| best.cost);
        if let Some(limits) = &mut self.limits
            && let Some(spent) = self.cx.get_var::<Spending>()
        {
            limits.hear(spent, Instant::now());
        }
        self.share_shortlist();
        if KIND != RULED || self.options.replicable.is_none() {
            self.set_limit();
        }
        // A cutoff may exclude solutions that meet the target.
        if self.options.target.is_some()
            && self.best.is_some_and(|best| self.options.is_of_interest(P::GOAL, &best))
        {
            self.halt = Some(Halt::Target);
        }
    }

    /// Sets the cost to prune by, as far as it is known.
    fn set_limit(&mut self) {
        (self.limit, self.inclusive) = match KIND {
            RULED => self.limit_by_rule(),
            _ => (self.best, false),
        };
    }

    fn limit_by_rule(&mut self) -> (Option<P::Cost>, bool) {
        let Options { target, cutoff, collect, .. } = self.options;
        // Costs worse than these are of no interest; equal ones are.
        let mut worst = *target;
        if let Some(collect) = collect {
            let own = self.cx.output().collected.worst_of_all(collect.kept());
            let listed = self.cx.get_var::<Shortlist<P>>().and_then(|list| list.get(collect.kept() - 1));
            let listed = listed.map(|(cost, _)| *cost);
            let near = collect.within.and_then(|tolerance| self.best.map(|best| near::<P>(best, tolerance)));
            worst = [worst, own, listed, near].into_iter().flatten().reduce(|a, b| P::GOAL.best(a, b));
        }
        // Costs equal to these are of no interest either.
        let best = if self.options.replicable.is_some() { self.options.start } else { self.best };
        let best = best.filter(|_| collect.is_none());
        let known = [*cutoff, best].into_iter().flatten().reduce(|a, b| P::GOAL.best(a, b));
        match (worst, known) {
            (None, known) => (known, false),
            (Some(worst), Some(known)) if !P::GOAL.better(&worst, &known) => (Some(known), false),
            (Some(worst), _) => match worst.next_worse(P::GOAL) {
                Some(next) => (Some(next), false),
                None => (Some(worst), true),
            },
        }
    }

    /// Adds the solutions collected by this task to the shared shortlist.
    fn share_shortlist(&mut self) {
        if KIND != RULED || self.options.collect.is_none() {
            return;
        }
        let known = self.cx.get_var::<Shortlist<P>>().cloned().unwrap_or_default();
        if let Some(list) = self.cx.output().collected.shorten(&known) {
            self.cx.set_var::<Shortlist<P>>(list);
        }
    }

    /// Makes the round of the problem's heuristics that is due, if any. Returns the time that it took.
    pub(crate) fn make_round(&mut self, problem: &P) -> Duration {
        let Some(number) = self.round.take() else { return Duration::ZERO };
        let began = Instant::now();
        let best = self.cx.get_var::<Incumbent<P>>().map(|best| best.solution.clone());
        let (node, here) = (self.cx.node(), self.cx.worked_here());
        let stops = || {
            let now = Instant::now();
            let is_over =
                || self.limits.as_ref().is_some_and(|limits| limits.halts(node, here, now).is_some());
            self.cx.migrate() || now - began > ROUND || is_over()
        };
        let made = round(problem, best.as_ref(), node, number, &stops);
        // Other tasks may have found better ones since.
        let better = made.is_some_and(|(cost, solution)| {
            let better = self.cx.set_var::<Incumbent<P>>(Best::new(cost, solution));
            if better {
                tracing::debug!(?cost, "a better solution, by a heuristic");
            }
            better
        });
        self.hear();
        let took = began.elapsed();
        self.rounds.end(took, better);
        self.reported += took;
        took
    }

    #[cold]
    fn found(&mut self, problem: &P, leaf: &P::State, cost: P::Cost) {
        let solution = problem.solution(leaf);
        if let Some(above) = self.above.filter(|above| contradicts::<P>(cost, *above)) {
            self.mistake = Some(not_a_bound_of_all::<P>(cost, above, "a state above it"));
        }
        self.new =
            Some(cost).filter(|_| KIND != WHOLE && may_compare(self.compared, self.cx.output().states));
        if KIND == RULED {
            if let Some(collect) = self.options.collect {
                let collected = &mut self.cx.output().collected;
                collected.add(cost, &solution, collect.kept());
                if let (Some(tolerance), Some(best)) = (collect.within, self.best) {
                    collected.drop_worse(near::<P>(P::GOAL.best(best, cost), tolerance));
                }
            }
            if self.options.replicable.is_some() {
                let (position, fences) = (self.position.clone(), self.fences.clone());
                self.cx.set_var::<Incumbent<P>>(Best { cost, solution, position, fences });
                (self.limit, self.inclusive, self.found) = (Some(cost), false, Some(cost));
                return;
            }
        }
        if self.best.is_none_or(|best| P::GOAL.better(&cost, &best)) {
            tracing::debug!(?cost, "a better solution");
            self.cx.set_var::<Incumbent<P>>(Best::new(cost, solution));
        }
        self.hear();
    }

    /// Applies the rules of pruning to a bound. Returns whether to visit its state.
    fn admits(&mut self, bound: P::Cost) -> bool {
        let Some(limit) = self.limit else { return true };
        let admitted = P::GOAL.better(&bound, &limit) || self.inclusive && bound == limit;
        if admitted && self.is_near_enough(bound) {
            self.cx.output().leave(bound);
            return false;
        }
        admitted
    }

    /// Returns whether the best solution is good enough, compared with a bound.
    fn is_near_enough(&self, bound: P::Cost) -> bool {
        let tolerance = self.options.tolerance;
        if tolerance == Tolerance::NONE || self.options.collect.is_some() {
            return false;
        }
        // Only the costs of solutions count, and not those found by others if the search ignores them.
        let best =
            if self.options.replicable.is_some() { self.found.or(self.options.start) } else { self.best };
        let best = best.filter(|best| self.options.is_of_interest(P::GOAL, best));
        let numbers = best.and_then(Cost::as_number).zip(bound.as_number());
        numbers.is_some_and(|(best, bound)| (best - bound).abs() <= tolerance.beside(best))
    }

    fn is_better(&self, cost: P::Cost) -> bool {
        let Some(limit) = self.limit else { return true };
        P::GOAL.better(&cost, &limit) || self.inclusive && cost == limit
    }

    /// Returns the limit to pass to the problem as its best cost. The problem may stop at bounds that are
    /// only as good, so this is `None` if such states are of interest.
    fn told_limit(&self) -> Option<P::Cost> {
        self.limit.filter(|_| !self.inclusive)
    }

    /// Reports the progress, and checks the clock.
    #[cold]
    fn report(&mut self) {
        self.end();
        let now = Instant::now();
        let took = now - std::mem::replace(&mut self.reported, now);
        if took < REPORT_EVERY / 2 {
            self.report_at = (self.report_at * 2).min(REPORT_STATES_MAX);
        } else if took > REPORT_EVERY * 2 {
            self.report_at = (self.report_at / 2).max(1);
        }
        if now - self.took_stock >= self.takes_stock_every {
            (self.took_stock, self.takes_stock_every) = (now, TAKE_STOCK_EVERY);
            self.stock_is_due = true;
        }
        if self.round.is_none() {
            self.round = self.rounds.begin(self.options.share_of_heuristics(), took);
        }
        if let Some(limits) = &self.limits {
            let (node, here) = (self.cx.node(), self.cx.worked_here());
            if let Some(spent) = limits.says(node, here, now) {
                self.cx.set_var::<Spending>(spent);
            }
            self.report_at = self.report_at.min(limits.states_ahead(node, here));
            self.halt = self.halt.or(limits.halts(node, here, now));
        }
    }

    /// Adds the counts to the task's output, and resets them.
    pub(crate) fn end(&mut self) {
        self.cx.worked(self.states);
        let (states, pruned) = (std::mem::take(&mut self.states), std::mem::take(&mut self.pruned));
        self.states_ahead = self.states_ahead.map(|ahead| ahead.saturating_sub(states));
        let output = self.cx.output();
        output.states += states;
        output.pruned += pruned;
    }

    /// Records the bound of states that are omitted.
    pub(crate) fn leave(&mut self, bound: P::Cost) {
        if KIND == WHOLE || self.is_better(bound) {
            self.cx.output().leave(bound);
        }
    }

    /// Records the bound of a state that is omitted. If it is a solution, the solution counts.
    pub(crate) fn leave_state(&mut self, problem: &P, state: Unvisited<&mut P::State>) {
        let state = match state {
            Unvisited::State(state) => {
                if let Some(cost) = problem.leaf(state) {
                    if self.is_better(cost) {
                        self.found(problem, state, cost);
                    }
                    return;
                }
                state
            }
            Unvisited::Below(state) => state,
        };
        if let Some(bound) = (P::HOOKS.quick_bound)(problem, state, self.told_limit()) {
            self.leave(bound);
        }
    }
}

impl<P: Problem, const KIND: u8> Visitor<P> for Worker<'_, '_, P, KIND> {
    #[expect(clippy::inline_always, reason = "the innermost step of the search")]
    #[inline(always)]
    fn visit(&mut self, problem: &P, state: &mut P::State) -> Below {
        self.states += 1;
        let visited = match KIND {
            WHOLE => visit::<P, false>(problem, state, self.limit),
            PLAIN => visit::<P, true>(problem, state, self.limit),
            _ => match self.look_at(problem, state) {
                Evaluation::Leaf(cost) if self.is_better(cost) => Visit::Better(cost),
                Evaluation::Leaf(_) => Visit::Leaf,
                Evaluation::Pruned => Visit::Pruned,
                Evaluation::Hopeful(_) => Visit::Open,
                Evaluation::Nan(function) => {
                    self.found_nan(function, state);
                    return Below::NothingAndPause;
                }
            },
        };
        match visited {
            Visit::Open => return Below::Open,
            Visit::Better(cost) => {
                self.found(problem, state, cost);
                if self.new.is_some() || self.mistake.is_some() {
                    return Below::NothingAndPause;
                }
            }
            Visit::NanLeaf => {
                self.found_nan("leaf", state);
                return Below::NothingAndPause;
            }
            Visit::NanBound => {
                self.found_nan("bound", state);
                return Below::NothingAndPause;
            }
            Visit::Leaf => {}
            Visit::Pruned => {
                self.pruned += 1;
                if P::WORST_LAST {
                    return Below::NothingNorAfter;
                }
            }
        }
        Below::Nothing
    }

    fn visit_root(&mut self, problem: &P, state: &mut P::State) -> Below {
        self.above = None;
        if KIND == WHOLE {
            return self.visit(problem, state);
        }
        match self.assess(problem, state) {
            Assessed::Open(bound) => {
                self.begin_at(bound);
                Below::Open
            }
            Assessed::Nothing => Below::Nothing,
            Assessed::NothingNorAfter => Below::NothingNorAfter,
        }
    }

    /// Polls the runtime after each branched state, and now and then between states without children: leaves
    /// are many and cheap, but a level may contain nothing else.
    #[inline]
    fn pauses(&mut self, opened: bool) -> bool {
        let at_once = || self.halt.is_some() || self.states_ahead.is_some_and(|ahead| self.states >= ahead);
        if KIND == RULED && at_once() {
            return true;
        }
        if !opened && !self.states.is_multiple_of(ASK_STATES) {
            return false;
        }
        if self.states >= self.report_at {
            self.report();
            if self.stock_is_due || self.halt.is_some() || self.round.is_some() {
                return true;
            }
        }
        self.cx.has_requests()
    }
}

enum Evaluation<C> {
    Leaf(C),
    Pruned,
    Hopeful(C),
    /// This function has returned a cost that is not a number.
    Nan(&'static str),
}

impl<P: Problem, const KIND: u8> Worker<'_, '_, P, KIND> {
    fn look_at(&mut self, problem: &P, state: &mut P::State) -> Evaluation<P::Cost> {
        if let Some(cost) = problem.leaf(state) {
            return if cost.is_nan() { Evaluation::Nan("leaf") } else { Evaluation::Leaf(cost) };
        }
        match problem.bound(state, self.told_limit()) {
            Some(bound) if bound.is_nan() => Evaluation::Nan("bound"),
            Some(bound) if self.admits(bound) => Evaluation::Hopeful(bound),
            _ => Evaluation::Pruned,
        }
    }
}

/// Returns the worst cost that is within a tolerance of the best.
pub(crate) fn near<P: Problem>(best: P::Cost, tolerance: Tolerance) -> P::Cost {
    let by = best.as_number().map(|number| tolerance.beside(number));
    by.and_then(|by| best.worse_by(P::GOAL, by)).unwrap_or(best)
}
