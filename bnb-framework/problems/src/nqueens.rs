//! In how many ways can n queens be placed on an n by n board so that none attacks another? (OEIS A000170)

use std::process::ExitCode;

use bnb_framework::{
    Children, Copies, Enumerate, Tree,
    cli::{self, Counts, Failure},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The board.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Board {
    size: u32,
}

/// Queens in the first rows, one in each, represented by the attacked fields of the next row: columns, and both
/// kinds of diagonals.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Queens {
    columns: u32,
    left: u32,
    right: u32,
}

/// The free columns of the next row that were not tried yet.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Free(u32);

impl Board {
    /// Creates a board of a size from 0 to 31.
    pub fn new(size: u32) -> Option<Self> {
        (size <= 31).then_some(Self { size })
    }

    fn all(self) -> u32 {
        (1 << self.size) - 1
    }
}

impl Tree for Board {
    type State = Queens;
    type Children = Free;

    fn root(&self) -> Queens {
        Queens { columns: 0, left: 0, right: 0 }
    }

    #[inline]
    fn branch(&self, queens: &mut Queens) -> Free {
        Free(self.all() & !(queens.columns | queens.left | queens.right))
    }
}

impl Children<Board> for Free {
    type Step = Copies;

    #[inline]
    fn next(&mut self, _: &Board, above: &Queens) -> Option<Queens> {
        let column = self.0 & self.0.wrapping_neg();
        self.0 ^= column;
        let next = Queens {
            columns: above.columns | column,
            left: (above.left | column) << 1,
            right: (above.right | column) >> 1,
        };
        (column != 0).then_some(next)
    }

    fn split(&mut self, _: &Board, _: &Queens) -> Option<Self> {
        let mut away = *self;
        for _ in 0..self.0.count_ones() / 2 {
            away.0 &= away.0 - 1;
        }
        self.0 ^= away.0;
        (away.0 != 0).then_some(away)
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.0 == 0
    }

    fn is_single(&self, _: &Board, _: &Queens) -> bool {
        self.0.is_power_of_two()
    }
}

impl Enumerate for Board {
    /// Full boards.
    type Output = u64;

    #[inline]
    fn visit(&self, queens: &Queens, boards: &mut u64) {
        // Most boards are not full: predicting that costs less than adding 0 to memory.
        if queens.columns == self.all() {
            *boards += 1;
        }
    }
}

/// The choice of the board.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The size of the board, up to 31.
    size: u32,
}

impl Counts for Board {
    const NAME: &'static str = "nqueens";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Counts the ways to place n queens so that none attacks another";
    type Arguments = Arguments;

    fn from_arguments(Arguments { size }: Arguments) -> Result<Self, Failure> {
        Self::new(size).ok_or_else(|| Failure::usage(format!("a board of {size} is too large: at most 31")))
    }

    fn show(ways: &u64) -> (String, Value) {
        (format!("{ways} ways"), json!({ "ways": ways }))
    }
}

/// Runs the program `nqueens`. Its search is compiled here, in the crate of its problem, so that it needs no
/// link-time optimisation.
pub fn main() -> ExitCode {
    cli::main_counting::<Board>()
}
