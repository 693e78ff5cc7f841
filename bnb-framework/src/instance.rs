//! The data shared by all tasks of a search: the problem and the options.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{grain::Grain, heuristics::Rounds, limits::Stopwatch, options::Options, problem::Problem};

/// The data shared by all tasks of a search.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Instance<P: Problem> {
    /// The problem.
    pub problem: P,
    /// The options of the search.
    pub options: Options<P::Cost>,
    /// The time that this node has spent searching.
    #[serde(skip)]
    pub(crate) stopwatch: Arc<Stopwatch>,
    /// The depth at which this node splits off tasks.
    #[serde(skip)]
    pub(crate) grain: Arc<Grain>,
    /// When this node tries heuristics.
    #[serde(skip)]
    pub(crate) rounds: Arc<Rounds>,
}

impl<P: Problem> Instance<P> {
    pub(crate) fn new(problem: P, options: Options<P::Cost>) -> Self {
        Self { problem, options, stopwatch: Arc::default(), grain: Arc::default(), rounds: Arc::default() }
    }
}
