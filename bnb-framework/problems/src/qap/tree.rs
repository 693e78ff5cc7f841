//! The tree: partial solutions, and the choice that is made next.

use bnb_framework::{Children, Copies, Tree};
use serde::{Deserialize, Serialize};

use super::{Qap, dual::Dual};

/// A partial solution: some facilities are placed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Placing {
    /// The place of each facility, if it has one.
    pub(super) places: Vec<Option<u8>>,
    /// The number of placed facilities.
    pub(super) placed: usize,
    /// The cost of the flows between them.
    pub(super) cost: i64,
    /// A lower bound on the cost of all completions, known before the state's own bound.
    pub(super) low: i64,
    /// The remaining problem with its reduced costs. Known once the state or its parent is bounded,
    /// if it is not too large.
    pub(super) dual: Option<Box<Dual>>,
    /// The next decision. Known once the state is bounded.
    pub(super) next: Option<Next>,
}

/// The facilities that were not tried yet at a place, or the places for a facility, each with a lower bound
/// on the cost; the worst first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Next {
    pub(super) one: u8,
    pub(super) is_facility: bool,
    pub(super) others: Vec<(i64, u8)>,
}

impl Placing {
    /// Returns the placed facilities and their places.
    pub(super) fn placed(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let places = self.places.iter().enumerate();
        places.filter_map(|(facility, place)| place.map(|place| (facility, usize::from(place))))
    }

    pub(super) fn unplaced(&self) -> Vec<usize> {
        (0..self.places.len()).filter(|&facility| self.places[facility].is_none()).collect()
    }

    pub(super) fn free(&self, size: usize) -> Vec<usize> {
        let taken = self.taken(size);
        (0..size).filter(|&place| !taken[place]).collect()
    }

    fn taken(&self, size: usize) -> Vec<bool> {
        let mut taken = vec![false; size];
        self.placed().for_each(|(_, place)| taken[place] = true);
        taken
    }

    /// Chooses the next decision: a facility or a place with as little as possible to search. `lows` are
    /// lower bounds for all choices, a row for each facility and a column for each place.
    pub(super) fn choose(
        &self,
        qap: &Qap,
        facilities: &[usize],
        places: &[usize],
        lows: &[i64],
        best: Option<i64>,
    ) -> Option<Next> {
        let n = facilities.len();
        let best = best.unwrap_or_else(|| lows.iter().max().map_or(0, |low| low + 1));
        let taken = self.taken(qap.size);
        let place_orbits = qap.place_symmetry.orbits(qap.size, |place| taken[place]);
        let facility_orbits =
            qap.facility_symmetry.orbits(qap.size, |facility| self.places[facility].is_some());
        let of_facility = |row: usize| {
            let choices = (0..n).map(|column| (lows[row * n + column], places[column]));
            next(facilities[row], true, choices.filter(|choice| choice.0 < best).collect(), &place_orbits)
        };
        let of_place = |column: usize| {
            let choices = (0..n).map(|row| (lows[row * n + column], facilities[row]));
            next(places[column], false, choices.filter(|choice| choice.0 < best).collect(), &facility_orbits)
        };
        // The nearer to the best, the less there is below.
        let work = |next: &Next| {
            next.others.iter().map(|&(low, _)| (i128::from(best) - i128::from(low)).pow(2)).sum::<i128>()
        };
        (0..n).map(of_facility).chain((0..n).map(of_place)).min_by_key(work)
    }
}

/// Keeps one of each orbit, the one with the highest bound.
fn next(one: usize, is_facility: bool, mut choices: Vec<(i64, usize)>, orbits: &[usize]) -> Next {
    choices.sort_unstable_by(|a, b| b.cmp(a));
    let mut others: Vec<(i64, u8)> = Vec::with_capacity(choices.len());
    let mut seen = vec![false; orbits.len()];
    for (low, other) in choices {
        if !std::mem::replace(&mut seen[orbits[other]], true) {
            others.push((low, small(other)));
        }
    }
    Next { one: small(one), is_facility, others }
}

pub(super) fn small(index: usize) -> u8 {
    u8::try_from(index).expect("there are at most 128 facilities")
}

impl Tree for Qap {
    type State = Placing;
    type Children = Next;

    fn root(&self) -> Placing {
        let places = vec![None; self.size];
        Placing { places, placed: 0, cost: 0, low: i64::MIN, dual: None, next: None }
    }

    fn branch(&self, placing: &mut Placing) -> Next {
        placing.next.take().unwrap_or_else(|| {
            // No bound was computed.
            let facility = placing.unplaced().first().copied().unwrap_or(0);
            let others =
                placing.free(self.size).into_iter().map(|place| (placing.low, small(place))).collect();
            Next { one: small(facility), is_facility: true, others }
        })
    }
}

impl Children<Qap> for Next {
    type Step = Copies;

    fn next(&mut self, qap: &Qap, parent: &Placing) -> Option<Placing> {
        let (low, other) = self.others.pop()?;
        let (facility, place) = if self.is_facility { (self.one, other) } else { (other, self.one) };
        let after = |dual: &Dual| {
            let row = dual.facilities.binary_search(&facility).ok()?;
            let column = dual.places.binary_search(&place).ok()?;
            Some(Box::new(dual.after(row, column)))
        };
        let mut places = parent.places.clone();
        places[usize::from(facility)] = Some(place);
        Some(Placing {
            places,
            placed: parent.placed + 1,
            cost: parent.cost + qap.added(parent, facility.into(), place.into()),
            low,
            dual: parent.dual.as_deref().and_then(after),
            next: None,
        })
    }

    /// Splits off the half that looks worse.
    fn split(&mut self, _: &Qap, _: &Placing) -> Option<Self> {
        let kept = self.others.split_off(self.others.len().div_ceil(2));
        let others = std::mem::replace(&mut self.others, kept);
        (!others.is_empty()).then_some(Self { others, ..*self })
    }

    fn count(&self, _: &Qap, _: &Placing) -> u64 {
        self.others.len() as u64
    }

    fn is_empty(&self) -> bool {
        self.others.is_empty()
    }

    fn is_single(&self, _: &Qap, _: &Placing) -> bool {
        self.others.len() == 1
    }
}
