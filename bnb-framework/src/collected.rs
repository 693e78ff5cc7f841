//! The best solutions, not only the best one.

use std::{cmp::Ordering, marker::PhantomData};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use taskwork::Variable;

use crate::{cost::Goal, incumbent::Best, problem::Problem};

/// Some of the best solutions, the best first; solutions of equal cost are in the order of their encoding, so that the
/// result does not depend on their finders and times. Decoding fails if a solution is not one of the problem's, since a
/// list without it would seem complete.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "", try_from = "Unread<P>")]
pub(crate) struct Collected<P: Problem> {
    solutions: Vec<Known<P>>,
    /// The maximum number of solutions; 0 while there are none.
    at_most: usize,
}

/// A decoded [`Collected`] with encoded solutions.
#[derive(Deserialize)]
#[serde(bound = "")]
struct Unread<P: Problem> {
    solutions: Vec<Known<P>>,
    at_most: usize,
}

/// An encoded solution with its cost. The encoding distinguishes it from the others on every node, since all
/// nodes run the same build of a program.
type Known<P> = (<P as Problem>::Cost, Vec<u8>);

/// The variable that holds the best solutions known, with their costs. Of two values, the one that is better
/// at the first difference wins. If two nodes add to it at the same time, one addition may be lost; its node
/// adds again when it finds more. So the value may be worse than the knowledge of all nodes together, which
/// only means that less is pruned.
#[derive(Debug)]
pub(crate) struct Shortlist<P>(PhantomData<P>);

/// Longer lists are not shared, since the variable is sent to every node.
const SHORTLIST_MAX: usize = 1024;
/// Nor are lists with encodings that exceed this total, in bytes: each node then prunes by its own collected
/// solutions.
const SHORTLIST_BYTES_MAX: usize = 128 << 10;

impl<P: Problem> Variable for Shortlist<P> {
    type Value = Vec<Known<P>>;
    const NAME: &'static str = "shortlist";

    fn improves(new: &Self::Value, old: &Self::Value) -> bool {
        let differ = new.iter().zip(old).find(|(new, old)| new != old);
        differ.map_or(new.len() > old.len(), |(new, old)| order::<P>(new, old) == Ordering::Less)
    }
}

fn order<P: Problem>(a: &Known<P>, b: &Known<P>) -> Ordering {
    let costs = a.0.cmp(&b.0);
    let costs = if P::GOAL == Goal::Minimise { costs } else { costs.reverse() };
    costs.then_with(|| a.1.cmp(&b.1))
}

fn insert<P: Problem>(list: &mut Vec<Known<P>>, entry: Known<P>, at_most: usize) {
    if let Err(place) = place_of::<P>(list, &entry) {
        list.insert(place, entry);
        list.truncate(at_most);
    }
}

/// Returns the position of a solution in a list, or the position where it belongs.
fn place_of<P: Problem>(list: &[Known<P>], entry: &Known<P>) -> Result<usize, usize> {
    list.binary_search_by(|known| order::<P>(known, entry))
}

/// The maximum memory that one solution may claim, in bytes. An output has at most 64 MiB, and a number takes up to
/// sixteen times the bytes of its encoding.
const CLAIMED_BYTES_MAX: usize = 1 << 30;

/// Decodes a solution from exactly these bytes. They may be another node's, so lengths in them are believed only up to
/// [`CLAIMED_BYTES_MAX`].
fn read<S: DeserializeOwned>(bytes: &[u8]) -> Result<S, String> {
    let format = bincode::config::standard().with_limit::<CLAIMED_BYTES_MAX>();
    let read = bincode::serde::decode_from_slice(bytes, format);
    let (solution, used) = read.map_err(|error| error.to_string())?;
    if used < bytes.len() {
        return Err(format!("{} of {} bytes were left over", bytes.len() - used, bytes.len()));
    }
    Ok(solution)
}

impl<P: Problem> TryFrom<Unread<P>> for Collected<P> {
    type Error = String;

    fn try_from(Unread { solutions, at_most }: Unread<P>) -> Result<Self, String> {
        for (cost, bytes) in &solutions {
            read::<P::Solution>(bytes).map_err(|error| {
                format!(
                    "a collected solution of cost {cost:?} cannot be read again: {error}. Serialize and \
                     Deserialize of the problem's solutions do not agree"
                )
            })?;
        }
        Ok(Self { solutions, at_most })
    }
}

impl<P: Problem> Collected<P> {
    /// Adds a solution.
    ///
    /// # Panics
    /// Panics if the solution cannot be encoded, which is a bug in the program.
    pub(crate) fn add(&mut self, cost: P::Cost, solution: &P::Solution, at_most: usize) {
        let format = bincode::config::standard();
        let bytes = bincode::serde::encode_to_vec(solution, format).expect("a solution can be encoded");
        self.at_most = at_most;
        insert::<P>(&mut self.solutions, (cost, bytes), at_most);
    }

    pub(crate) fn drop_worse(&mut self, cost: P::Cost) {
        let good = self.solutions.partition_point(|(known, _)| !P::GOAL.better(&cost, known));
        self.solutions.truncate(good);
    }

    /// Returns the cost of the last solution if the list is full.
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
            insert::<P>(&mut self.solutions, solution, self.at_most);
        }
    }

    /// Returns the solutions, the best first.
    ///
    /// # Panics
    /// Panics if a solution that was [added](Self::add), and not decoded since, cannot be decoded: a bug in
    /// the program.
    pub(crate) fn solutions(&self) -> Vec<Best<P::Cost, P::Solution>> {
        let read = |(cost, bytes): &Known<P>| {
            let solution = read(bytes).expect("every solution was read when the list was");
            Best::new(*cost, solution)
        };
        self.solutions.iter().map(read).collect()
    }

    /// Adds these solutions to a shortlist. Returns `None` if that makes it no better, or too large.
    pub(crate) fn shorten(&self, known: &[Known<P>]) -> Option<Vec<Known<P>>> {
        if self.at_most > SHORTLIST_MAX {
            return None;
        }
        let is_news = |one: &Known<P>| place_of::<P>(known, one).is_err_and(|place| place < self.at_most);
        let news: Vec<&Known<P>> = self.solutions.iter().filter(|one| is_news(one)).collect();
        if news.is_empty() {
            return None;
        }
        let mut list = known.to_vec();
        for one in news {
            insert::<P>(&mut list, one.clone(), self.at_most);
        }
        let bytes: usize = list.iter().map(|(cost, bytes)| size_of_val(cost) + bytes.len()).sum();
        (bytes <= SHORTLIST_BYTES_MAX).then_some(list)
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use serde::{Deserializer, de::Error as _};
    use taskwork::JobError;

    use super::*;
    use crate::{options::Collect, solver::Solver, tree::Tree};

    /// Five leaves with the costs 0 to 4.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    struct Leaves;

    /// A solution that can be written but, for one cost, cannot be read.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    struct Fickle(u8);

    impl<'de> Deserialize<'de> for Fickle {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            match u8::deserialize(from)? {
                2 => Err(D::Error::custom("two is refused")),
                other => Ok(Self(other)),
            }
        }
    }

    impl Tree for Leaves {
        type State = Option<u8>;
        type Children = VecDeque<Option<u8>>;

        fn root(&self) -> Option<u8> {
            None
        }

        fn branch(&self, _: &mut Option<u8>) -> VecDeque<Option<u8>> {
            (0..5).map(Some).collect()
        }
    }

    impl Problem for Leaves {
        type Cost = u8;
        type Solution = Fickle;

        fn leaf(&self, state: &Option<u8>) -> Option<u8> {
            *state
        }

        fn bound(&self, _: &mut Option<u8>, _: Option<u8>) -> Option<u8> {
            Some(0)
        }

        fn solution(&self, leaf: &Option<u8>) -> Fickle {
            Fickle(leaf.unwrap_or_default())
        }
    }

    fn best(at_most: usize) -> Solver<Leaves> {
        Solver::new(Leaves).workers(1).collect(Collect { at_most, within: None })
    }

    #[test]
    fn false_length_is_refused_before_allocation() {
        // The length of a text of 2^64 - 1 bytes.
        let false_length = [253, 255, 255, 255, 255, 255, 255, 255, 255];
        read::<String>(&false_length).unwrap_err();
    }

    #[test]
    fn undecodable_solution_in_list_fails_job() {
        let costs = |at_most| -> Result<Vec<u8>, JobError> {
            Ok(best(at_most).run()?.collected.iter().map(|one| one.cost).collect())
        };
        assert_eq!(costs(1).unwrap(), [0], "what is not collected at the end is not read");
        let error = costs(4).unwrap_err().to_string();
        for part in ["a collected solution of cost 2 cannot be read again", "two is refused"] {
            assert!(error.contains(part), "no {part:?} in {error:?}");
        }
    }

    fn collected(solutions: &[(u8, u8)], at_most: usize) -> Collected<Leaves> {
        let mut collected = Collected::default();
        for &(cost, solution) in solutions {
            collected.add(cost, &Fickle(solution), at_most);
        }
        collected
    }

    #[test]
    fn shortlist_solutions_are_distinguished_by_content() {
        let known = collected(&[(1, 7), (1, 9), (3, 0)], 3).shorten(&[]).unwrap();
        assert_eq!(known, [(1, vec![7]), (1, vec![9]), (3, vec![0])]);
        let again = collected(&[(1, 9), (1, 7)], 3);
        assert_eq!(again.shorten(&known), None, "both are known");
        let more = collected(&[(1, 8), (4, 0)], 3).shorten(&known).unwrap();
        assert_eq!(more, [(1, vec![7]), (1, vec![8]), (1, vec![9])]);
        assert!(
            Shortlist::<Leaves>::improves(&more, &known) && !Shortlist::<Leaves>::improves(&known, &more)
        );
    }

    #[test]
    fn oversized_shortlist_is_not_shared() {
        assert_eq!(collected(&[(1, 7)], SHORTLIST_MAX + 1).shorten(&[]), None);
        let large = vec![(1, vec![8; SHORTLIST_BYTES_MAX])];
        assert_eq!(collected(&[(1, 7)], 2).shorten(&large), None);
        assert_eq!(
            collected(&[(1, 7)], 1).shorten(&large).unwrap(),
            [(1, vec![7])],
            "it has taken its place"
        );
    }
}
