//! The shortest Golomb ruler: marks on a ruler such that no two pairs of them are the same distance apart.
//! (OEIS A003022)

use std::process::ExitCode;

use bnb_framework::{
    Children, Copies, Problem, Tree,
    cli::{self, BuildProblem, DisplaySolution, Failure},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The rulers with a given number of marks.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Golomb {
    marks: usize,
}

/// The first marks of a ruler.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ruler {
    /// The positions of the marks; the first is 0.
    marks: Vec<u16>,
    /// The distances between them, as bits.
    distances: Vec<u64>,
    /// No ruler that starts this way is shorter.
    bound: u16,
    /// The minimum distance from the next mark to the end of a ruler that starts this way. Known once it was
    /// branched.
    rest: u16,
}

/// The positions of the next mark that were not tried yet.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Places {
    next: u16,
    end: u16,
}

/// The maximum number of marks of a ruler; larger problems would not finish.
pub const MARKS_MAX: usize = 32;

impl Golomb {
    /// Creates the problem for rulers with 2 to 32 marks.
    pub fn new(marks: usize) -> Option<Self> {
        (2..=MARKS_MAX).contains(&marks).then_some(Self { marks })
    }

    /// Returns an upper bound on the shortest length: marks at 0, 1, 3, 7, … would be a ruler, and
    /// so would marks at k·n² + k², the last of which is below n³.
    fn length_max(self) -> u16 {
        let marks = u16::try_from(self.marks).unwrap_or(u16::MAX);
        if marks < 12 { (1 << (marks - 1)) - 1 } else { marks.pow(3) }
    }
}

impl Ruler {
    fn last(&self) -> u16 {
        self.marks.last().copied().unwrap_or(0)
    }

    fn has(&self, distance: u16) -> bool {
        self.distances[usize::from(distance / 64)] & (1 << (distance % 64)) != 0
    }

    /// Returns the minimum total length of this many more steps from mark to mark: the sum of the smallest
    /// distances that are not taken yet.
    fn least(&self, steps: usize) -> u16 {
        let words = self.distances.iter().enumerate();
        let free = words.flat_map(|(at, word)| {
            (0..64).filter(move |bit| word & (1 << bit) == 0).map(move |bit| 64 * at + bit)
        });
        // No distance is 0.
        let sum: usize = free.skip(1).take(steps).sum();
        u16::try_from(sum).unwrap_or(u16::MAX)
    }

    /// Returns whether there can be a mark at a position.
    fn takes(&self, place: u16) -> bool {
        self.marks.iter().all(|mark| !self.has(place - mark))
    }

    fn with(&self, place: u16) -> Self {
        let mut ruler = self.clone();
        for mark in &self.marks {
            let distance = place - mark;
            ruler.distances[usize::from(distance / 64)] |= 1 << (distance % 64);
        }
        ruler.marks.push(place);
        ruler.bound = place.saturating_add(self.rest);
        ruler
    }
}

impl Tree for Golomb {
    type State = Ruler;
    type Children = Places;

    fn root(&self) -> Ruler {
        let words = usize::from(self.length_max() / 64) + 1;
        Ruler { marks: vec![0], distances: vec![0; words], bound: 0, rest: 0 }
    }

    /// The distance needed after the next mark is the same for all its positions, so bounds grow with the
    /// position.
    fn branch(&self, ruler: &mut Ruler) -> Places {
        ruler.rest = ruler.least(self.marks - ruler.marks.len() - 1);
        Places { next: ruler.last() + 1, end: self.length_max() + 1 }
    }
}

impl Children<Golomb> for Places {
    type Step = Copies;

    fn next(&mut self, _: &Golomb, parent: &Ruler) -> Option<Ruler> {
        let place = (self.next..self.end).find(|&place| parent.takes(place));
        self.next = place.map_or(self.end, |place| place + 1);
        place.map(|place| parent.with(place))
    }

    /// Splits off all positions but the nearest: distant ones are worth little.
    fn split(&mut self, _: &Golomb, parent: &Ruler) -> Option<Self> {
        let mut places = (self.next..self.end).filter(|&place| parent.takes(place));
        let first = places.next()?;
        let from = places.next().unwrap_or(first);
        let away = Self { next: from, end: self.end };
        self.end = from;
        Some(away)
    }

    fn is_empty(&self) -> bool {
        self.next >= self.end
    }

    fn is_single(&self, _: &Golomb, parent: &Ruler) -> bool {
        (self.next..self.end).filter(|&place| parent.takes(place)).take(2).count() == 1
    }
}

impl Problem for Golomb {
    /// The length.
    type Cost = u16;
    /// The marks.
    type Solution = Vec<u16>;
    const WORST_LAST: bool = true;

    fn leaf(&self, ruler: &Ruler) -> Option<u16> {
        (ruler.marks.len() == self.marks).then(|| ruler.last())
    }

    fn bound(&self, ruler: &mut Ruler, _: Option<u16>) -> Option<u16> {
        Some(ruler.bound)
    }

    fn solution(&self, ruler: &Ruler) -> Vec<u16> {
        ruler.marks.clone()
    }

    fn cost_of(&self, marks: &Vec<u16>) -> Option<u16> {
        if marks.len() != self.marks {
            return None;
        }
        let pairs =
            marks.iter().enumerate().flat_map(|(at, a)| marks[..at].iter().map(move |b| a.checked_sub(*b)));
        let mut distances: Vec<u16> = pairs.collect::<Option<_>>()?;
        distances.sort_unstable();
        let sound = distances.is_sorted_by(|a, b| a < b) && distances.first() != Some(&0);
        marks.last().filter(|_| sound && marks.first() == Some(&0)).copied()
    }
}

impl DisplaySolution for Golomb {
    const COST: &'static str = "length";
    const SOLUTION: &'static str = "ruler";

    fn show(&self, marks: &Vec<u16>) -> (String, Value) {
        (format!("{marks:?}"), json!(marks))
    }
}

/// The choice of the ruler.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The number of marks, 2 to 32.
    marks: usize,
}

impl BuildProblem for Golomb {
    const NAME: &'static str = "golomb";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Finds a shortest Golomb ruler";
    type Arguments = Arguments;

    fn from_arguments(Arguments { marks }: Arguments) -> Result<Self, Failure> {
        let wrong = || Failure::usage(format!("a ruler of {marks} marks: 2 to {MARKS_MAX} were expected"));
        Self::new(marks).ok_or_else(wrong)
    }
}

/// Runs the program `golomb`. Its search is compiled here, in the crate of its problem, so that it needs no
/// link-time optimisation.
pub fn main() -> ExitCode {
    cli::main::<Golomb>()
}
