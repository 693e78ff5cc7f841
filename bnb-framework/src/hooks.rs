//! The optional functions of a problem.

#![expect(clippy::type_complexity, reason = "the documentation shows the signatures of the functions")]

use std::fmt;

use crate::problem::Problem;

/// The optional functions of a problem, for heuristics, reports and users: [`Problem::HOOKS`]. The search itself
/// calls none of them.
///
/// # Examples
/// ```
/// # use std::collections::VecDeque;
/// # use bnb_framework::{Hooks, Problem, Tree};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Route { cities: usize }
/// # impl Tree for Route {
/// #     type State = Vec<usize>;
/// #     type Children = VecDeque<Vec<usize>>;
/// #     fn root(&self) -> Vec<usize> { vec![] }
/// #     fn branch(&self, _: &mut Vec<usize>) -> VecDeque<Vec<usize>> { VecDeque::new() }
/// # }
/// impl Route {
///     /// Visits the cities in order, from a city that depends on the seed.
///     fn around(&self, seed: u64) -> Vec<usize> {
///         let first = seed as usize % self.cities;
///         (0..self.cities).map(|city| (first + city) % self.cities).collect()
///     }
/// }
///
/// impl Problem for Route {
///     type Cost = u64;
///     type Solution = Vec<usize>;
///     const HOOKS: Hooks<Self> = Hooks::<Self>::new().construct(|route, seed, _stops| Some(route.around(seed)));
///     // …
/// #     fn leaf(&self, _: &Vec<usize>) -> Option<u64> { None }
/// #     fn bound(&self, _: &mut Vec<usize>, _: Option<u64>) -> Option<u64> { None }
/// #     fn solution(&self, leaf: &Vec<usize>) -> Vec<usize> { leaf.clone() }
/// }
/// ```
pub struct Hooks<P: Problem> {
    pub(crate) quick_bound: fn(&P, &mut P::State, Option<P::Cost>) -> Option<P::Cost>,
    pub(crate) with_every_solution: fn(P) -> Option<P>,
    pub(crate) construct: fn(&P, u64, &dyn Fn() -> bool) -> Option<P::Solution>,
    pub(crate) improve: fn(&P, &P::Solution, u64, &dyn Fn() -> bool) -> Option<P::Solution>,
    pub(crate) read_solution: fn(&P, serde_json::Value) -> Option<P::Solution>,
}

impl<P: Problem> Hooks<P> {
    /// Returns the defaults of all functions.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            quick_bound: P::bound,
            with_every_solution: Some,
            construct: |_, _, _| None,
            improve: |_, _, _, _| None,
            read_solution: |_, given| serde_json::from_value(given).ok(),
        }
    }

    /// Sets a bound like [`Problem::bound`], but with little work, such as from the data that the parent stored in the
    /// state. The default is `bound` itself.
    ///
    /// It is called occasionally for all open states of a task, to report the bound of the open part, and when a limit
    /// stops the search. There may be thousands of states, and all calls together must not take longer than about 0.1
    /// s.
    #[must_use]
    pub const fn quick_bound(
        mut self,
        bound: fn(&P, &mut P::State, Option<P::Cost>) -> Option<P::Cost>,
    ) -> Self {
        self.quick_bound = bound;
        self
    }

    /// Sets the function that returns the problem in a form in which every solution is at some leaf, to be searched for
    /// more than the best; it returns `None` if there is no such form. The default is the problem itself.
    ///
    /// Set it if states may stop at the best solution below them, or if some are omitted because others are as good:
    /// otherwise a search that [collects](crate::Solver::collect) solutions may miss some.
    #[must_use]
    pub const fn with_every_solution(mut self, form: fn(P) -> Option<P>) -> Self {
        self.with_every_solution = form;
        self
    }

    /// Sets a heuristic that builds a solution without the tree; a different one for each seed, if possible. It returns
    /// `None` if it found nothing. By default there is none.
    ///
    /// The result may depend only on the instance and the seed, unless the last argument has returned `true`. That must
    /// be called about every millisecond, and once it returns `true` the heuristic must return soon. The result counts
    /// only as far as [`Problem::cost_of`] confirms it.
    #[must_use]
    pub const fn construct(
        mut self,
        heuristic: fn(&P, u64, &dyn Fn() -> bool) -> Option<P::Solution>,
    ) -> Self {
        self.construct = heuristic;
        self
    }

    /// Sets a round of local search, which returns a solution that is better than a given one, or `None` if it has found
    /// none. By default there is none.
    ///
    /// The requirements of [`construct`](Self::construct) apply here, too. A round should take 10 to 100 ms: it is
    /// repeated with other seeds while there is time.
    #[must_use]
    pub const fn improve(
        mut self,
        round: fn(&P, &P::Solution, u64, &dyn Fn() -> bool) -> Option<P::Solution>,
    ) -> Self {
        self.improve = round;
        self
    }

    /// Sets the parser of a solution that a user gives to a running search (`taskwork inject`). The default is
    /// the serialised form.
    #[must_use]
    pub const fn read_solution(mut self, parser: fn(&P, serde_json::Value) -> Option<P::Solution>) -> Self {
        self.read_solution = parser;
        self
    }
}

impl<P: Problem> Default for Hooks<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Problem> fmt::Debug for Hooks<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}
