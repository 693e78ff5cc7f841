//! The worker of a search that bounds states before it chooses the next one.

use super::{Evaluation, Worker};
use crate::{
    agenda::{Assessed, Assessor},
    problem::Problem,
};

impl<P: Problem, const KIND: u8> Assessor<P> for Worker<'_, '_, P, KIND> {
    fn assess(&mut self, problem: &P, state: &mut P::State) -> Assessed<P::Cost> {
        self.states += 1;
        match self.look_at(problem, state) {
            Evaluation::Hopeful(bound) => {
                if self.is_at_top {
                    self.begin_at(bound);
                }
                return Assessed::Open(bound);
            }
            Evaluation::Nan(function) => self.found_nan(function, state),
            Evaluation::Leaf(cost) if self.is_better(cost) => self.found(problem, state, cost),
            Evaluation::Leaf(_) => {}
            Evaluation::Pruned => {
                self.pruned += 1;
                if self.is_at_top {
                    self.compare_start(problem, state);
                }
                if P::WORST_LAST {
                    return Assessed::NothingNorAfter;
                }
            }
        }
        Assessed::Nothing
    }

    fn is_hopeful(&mut self, bound: P::Cost) -> bool {
        let hopeful = self.admits(bound);
        self.pruned += u64::from(!hopeful);
        self.above = Some(bound);
        hopeful
    }
}
