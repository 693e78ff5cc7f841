//! The shares of a member that its assigned calls take.

use super::{Claim, Load};
use crate::core::demand::Demand;

impl Load {
    /// Returns whether its memory suffices for another call next to those that may run with it.
    pub(super) fn has_memory_for(&self, demand: Demand) -> bool {
        let bytes = demand.memory;
        let mut others = self.workers.saturating_sub(u64::from(!demand.is_of_future()));
        let largest = self.memory.iter().rev().map(|(bytes, calls)| {
            let running = others.min(*calls);
            others -= running;
            bytes * running
        });
        bytes == 0 || self.capacity.has_memory(bytes + self.futures_memory + largest.sum::<u64>())
    }

    pub(super) fn occupy(&mut self, Claim { demand, task }: Claim) {
        if demand.is_of_future() {
            self.futures += 1;
            self.futures_memory += demand.memory;
            return;
        }
        self.assigned += 1;
        self.cores += u64::from(demand.cores);
        if demand.memory > 0 {
            *self.memory.entry(demand.memory).or_default() += 1;
        }
        self.wide += u64::from(demand.cores > 1);
        match self.tasks.iter_mut().find(|(known, _)| *known == task) {
            Some((_, calls)) => *calls += 1,
            None => self.tasks.push((task, 1)),
        }
    }

    pub(super) fn release(&mut self, Claim { demand, task }: Claim) {
        if demand.is_of_future() {
            self.futures -= 1;
            self.futures_memory -= demand.memory;
            return;
        }
        self.assigned -= 1;
        self.cores -= u64::from(demand.cores);
        if let Some(calls) = self.memory.get_mut(&demand.memory) {
            *calls -= 1;
            if *calls == 0 {
                self.memory.remove(&demand.memory);
            }
        }
        self.wide -= u64::from(demand.cores > 1);
        let index = self.tasks.iter().position(|(known, _)| *known == task).expect("it was assigned");
        let (_, calls) = &mut self.tasks[index];
        *calls -= 1;
        if *calls == 0 {
            self.tasks.swap_remove(index);
        }
    }
}
