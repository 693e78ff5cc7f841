//! The worker of a replicable search, which prunes only by explicitly passed limits.

use super::Worker;
use crate::{incumbent::Incumbent, parts::IsolatedVisitor, problem::Problem};

impl<P: Problem, const KIND: u8> IsolatedVisitor<P> for Worker<'_, '_, P, KIND> {
    fn enter(&mut self, limit: Option<P::Cost>, position: &[u32], fences: &[Option<P::Cost>]) {
        (self.found, self.above) = (limit, None);
        (self.limit, self.inclusive) = match (limit, self.base) {
            (Some(limit), Some((base, inclusive))) if P::GOAL.better(&base, &limit) => {
                (Some(base), inclusive)
            }
            (Some(limit), _) => (Some(limit), false),
            (None, Some((base, inclusive))) => (Some(base), inclusive),
            (None, None) => (None, false),
        };
        self.position.clear();
        self.position.extend_from_slice(position);
        self.fences.clear();
        self.fences.extend_from_slice(fences);
    }

    fn set_bound_above(&mut self, bound: P::Cost) {
        self.above = Some(bound);
    }

    fn best_found(&self) -> Option<P::Cost> {
        self.found
    }

    fn best_at_fence(&mut self, fence: usize) -> Option<P::Cost> {
        self.cx.get_var::<Incumbent<P>>().and_then(|best| best.cost_at_fence(fence))
    }

    fn pause_after(&mut self, states: Option<u64>) {
        self.end();
        self.states_ahead = states;
    }

    fn states_ahead(&self) -> u64 {
        self.states_ahead.map_or(u64::MAX, |ahead| ahead.saturating_sub(self.states))
    }
}
