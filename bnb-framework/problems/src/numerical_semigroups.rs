//! Counts the numerical semigroups of a genus (OEIS A007323; the tree and the arithmetic are from J.
//! Fromentin and F. Hivert, *Exploring the tree of numerical semigroups*, 2016).
//!
//! A **numerical semigroup** is a set of natural numbers that contains 0, is closed under addition, and lacks
//! only finitely many numbers; their number is its *genus*. Removing a **generator** (an element that is not
//! the sum of two others) beyond the largest gap produces a semigroup of the next genus, and each is produced
//! exactly once: together they form a tree with the set of all natural numbers as its root.

use std::process::ExitCode;

use bnb_framework::{
    Children, Copies, Enumerate, Tree,
    cli::{self, Counts, Failure},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// All numerical semigroups up to a genus.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Semigroups {
    genus: u8,
}

/// A numerical semigroup.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Semigroup {
    /// For each number, in how many ways it is a sum of two elements, regardless of their order: 0 if it is
    /// not an element, 1 if it is a generator.
    sums: Vec<u8>,
    /// One more than the largest gap.
    conductor: u8,
    /// The smallest element other than 0.
    multiplicity: u8,
    genus: u8,
}

/// The numbers beyond the largest gap that may be generators and were not tried yet.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Untried {
    next: u8,
    end: u8,
}

/// The maximum genus; beyond, the numbers of ways would not fit into bytes.
const GENUS_MAX: u8 = 80;

impl Semigroups {
    /// Creates the problem for a genus of at most 80.
    pub fn new(genus: u8) -> Option<Self> {
        (genus <= GENUS_MAX).then_some(Self { genus })
    }
}

impl Semigroup {
    fn is_generator(&self, number: u8) -> bool {
        self.sums[usize::from(number)] == 1
    }

    /// Returns the semigroup without a generator beyond its largest gap.
    fn without(&self, generator: u8) -> Self {
        let at = usize::from(generator);
        let mut sums = self.sums.clone();
        // A sum of the generator and an element has one way less.
        for (ways, other) in sums[at..].iter_mut().zip(&self.sums) {
            *ways -= u8::from(*other > 0);
        }
        let multiplicity = self.multiplicity + u8::from(generator == self.multiplicity);
        Self { sums, conductor: generator + 1, multiplicity, genus: self.genus + 1 }
    }
}

impl Tree for Semigroups {
    type State = Semigroup;
    type Children = Untried;

    /// All natural numbers. Generators of semigroups of the genus are below three times the genus.
    fn root(&self) -> Semigroup {
        let sums = (0..=3 * self.genus).map(|number| 1 + number / 2).collect();
        Semigroup { sums, conductor: 1, multiplicity: 1, genus: 0 }
    }

    fn branch(&self, semigroup: &mut Semigroup) -> Untried {
        let next = semigroup.conductor;
        // Every number from the conductor on is an element, so those beyond conductor + multiplicity are
        // sums.
        let end = if semigroup.genus < self.genus { next + semigroup.multiplicity } else { next };
        Untried { next, end }
    }
}

impl Children<Semigroups> for Untried {
    type Step = Copies;

    fn next(&mut self, _: &Semigroups, parent: &Semigroup) -> Option<Semigroup> {
        let generator = (self.next..self.end).find(|&number| parent.is_generator(number));
        self.next = generator.map_or(self.end, |generator| generator + 1);
        generator.map(|generator| parent.without(generator))
    }

    fn split(&mut self, _: &Semigroups, parent: &Semigroup) -> Option<Self> {
        let left: Vec<u8> = (self.next..self.end).filter(|&number| parent.is_generator(number)).collect();
        let middle = *left.get(left.len() / 2)?;
        let away = Self { next: middle, end: self.end };
        self.end = middle;
        Some(away)
    }

    fn is_empty(&self) -> bool {
        self.next >= self.end
    }

    fn is_single(&self, _: &Semigroups, parent: &Semigroup) -> bool {
        (self.next..self.end).filter(|&number| parent.is_generator(number)).take(2).count() == 1
    }
}

impl Enumerate for Semigroups {
    /// The number of semigroups of the genus.
    type Output = u64;

    fn visit(&self, semigroup: &Semigroup, count: &mut u64) {
        *count += u64::from(semigroup.genus == self.genus);
    }
}

/// The choice of the genus.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The genus, up to 80.
    genus: u8,
}

impl Counts for Semigroups {
    const NAME: &'static str = "numerical-semigroups";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Counts the numerical semigroups of a genus";
    type Arguments = Arguments;

    fn from_arguments(Arguments { genus }: Arguments) -> Result<Self, Failure> {
        let too_large = || Failure::usage(format!("a genus of {genus} is too large: at most {GENUS_MAX}"));
        Self::new(genus).ok_or_else(too_large)
    }

    fn show(count: &u64) -> (String, Value) {
        (format!("{count} numerical semigroups"), json!({ "semigroups": count }))
    }
}

/// Runs the program `numerical-semigroups`. Its search is compiled here, in the crate of its problem, so that it
/// needs no link-time optimisation.
pub fn main() -> ExitCode {
    cli::main_counting::<Semigroups>()
}
