//! The best solutions, not only the best one.

use std::{
    cmp::Ordering,
    hash::{DefaultHasher, Hasher as _},
    marker::PhantomData,
};

use serde::{Deserialize, Serialize};
use taskwork::Variable;

use crate::{
    incumbent::Best,
    problem::{Goal, Problem},
};

/// Some of the best solutions, the best first; of equal cost, in the order of their encoding, so that it does not matter who has
/// found them, and when.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Collected<P: Problem> {
    solutions: Vec<(P::Cost, Vec<u8>)>,
    /// How many there may be. 0 as long as there are none.
    at_most: usize,
}

/// The variable that holds the costs of the best solutions known, each with a hash by which it is told from the others. A value is
/// better whose first difference is. Of two nodes that have added to it at the same time one may lose; it adds again when it
/// finds more. So it may be worse than what all together know, and prunes a little less then.
#[derive(Debug)]
pub(crate) struct Shortlist<P>(PhantomData<P>);

/// More are not shared: what is sent to everybody must be small.
const SHORTLIST_MAX: usize = 1024;

impl<P: Problem> Variable for Shortlist<P> {
    type Value = Vec<(P::Cost, u64)>;
    const NAME: &'static str = "shortlist";

    fn improves(new: &Self::Value, old: &Self::Value) -> bool {
        let differ = new.iter().zip(old).find(|(new, old)| new != old);
        differ.map_or(new.len() > old.len(), |(new, old)| order::<P, u64>(new, old) == Ordering::Less)
    }
}

fn order<P: Problem, I: Ord>(a: &(P::Cost, I), b: &(P::Cost, I)) -> Ordering {
    let costs = a.0.cmp(&b.0);
    let costs = if P::GOAL == Goal::Minimise { costs } else { costs.reverse() };
    costs.then_with(|| a.1.cmp(&b.1))
}

fn insert<P: Problem, I: Ord>(list: &mut Vec<(P::Cost, I)>, entry: (P::Cost, I), at_most: usize) {
    if let Err(place) = list.binary_search_by(|known| order::<P, I>(known, &entry)) {
        list.insert(place, entry);
        list.truncate(at_most);
    }
}

impl<P: Problem> Collected<P> {
    /// Adds a solution.
    ///
    /// # Panics
    /// If the solution cannot be encoded: a mistake in the program.
    pub(crate) fn add(&mut self, cost: P::Cost, solution: &P::Solution, at_most: usize) {
        let format = bincode::config::standard();
        let bytes = bincode::serde::encode_to_vec(solution, format).expect("a solution can be encoded");
        self.at_most = at_most;
        insert::<P, _>(&mut self.solutions, (cost, bytes), at_most);
    }

    /// Drops what is worse than a cost.
    pub(crate) fn drop_worse(&mut self, cost: P::Cost) {
        let good = self.solutions.partition_point(|(known, _)| !P::GOAL.better(&cost, known));
        self.solutions.truncate(good);
    }

    /// The cost of the last, if there are as many as there may be.
    pub(crate) fn worst_of_all(&self, at_most: usize) -> Option<P::Cost> {
        self.solutions.get(at_most.checked_sub(1)?).map(|(cost, _)| *cost)
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.at_most = self.at_most.max(other.at_most);
        if self.solutions.is_empty() {
            self.solutions = other.solutions;
            return;
        }
        for solution in other.solutions {
            insert::<P, _>(&mut self.solutions, solution, self.at_most);
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.solutions.len()
    }

    /// The solutions, the best first. What the program has written and cannot read again is not among them.
    pub(crate) fn solutions(&self) -> Vec<Best<P::Cost, P::Solution>> {
        let read = |(cost, bytes): &(P::Cost, Vec<u8>)| {
            let read = bincode::serde::decode_from_slice(bytes, bincode::config::standard());
            match read {
                Ok((solution, _)) => Some(Best::new(*cost, solution)),
                Err(error) => {
                    tracing::error!(%error, ?cost, "a collected solution cannot be read again");
                    None
                }
            }
        };
        self.solutions.iter().filter_map(read).collect()
    }

    /// Adds these solutions to a shortlist. `None` if it has them already.
    pub(crate) fn shorten(&self, known: &[(P::Cost, u64)]) -> Option<Vec<(P::Cost, u64)>> {
        if self.at_most > SHORTLIST_MAX {
            return None;
        }
        let mut list = known.to_vec();
        for (cost, bytes) in &self.solutions {
            let mut hasher = DefaultHasher::new();
            hasher.write(bytes);
            insert::<P, _>(&mut list, (*cost, hasher.finish()), self.at_most);
        }
        Shortlist::<P>::improves(&list, &known.to_vec()).then_some(list)
    }
}

impl<P: Problem> Default for Collected<P> {
    fn default() -> Self {
        Self { solutions: Vec::new(), at_most: 0 }
    }
}

impl<P: Problem> Clone for Collected<P> {
    fn clone(&self) -> Self {
        Self { solutions: self.solutions.clone(), at_most: self.at_most }
    }
}
