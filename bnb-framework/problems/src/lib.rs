//! Problems with published answers on the branch-and-bound framework. Each has a short module, and a program
//! of the same name.
//!
//! ```text
//! cargo run --release -p bnb-problems --bin maxclique -- solve brock400_4.clq
//! ```
//!
//! Every program has the commands `solve`, `node` and `submit`; `--help` lists the options of a search.
//!
//! | program | result | method | published answers | example |
//! |---|---|---|---|---|
//! | [`knapsack`] | the most valuable items that fit | changing the greedy set from the break item outwards (Pisinger 1995, Martello and Toth 1997) | D. Pisinger's instances | `solve knapPI_1_100_1000_1` |
//! | [`maxclique`] | a largest clique, or a heaviest (`--weighted`) | colours and their conflicts (Tomita and Seki 2003, San Segundo 2011, Li and Quan 2010, Held and others 2012) | DIMACS | `solve brock400_4.clq` |
//! | [`qap`] | places for facilities that minimise flows times distances | dual ascent (Hahn and Grant 1998), symmetry | QAPLIB | `solve nug15.dat` |
//! | [`flowshop`] | an order of jobs that finishes first | machines alone and in pairs (Lageweg and others 1978), from both ends (Gmys and others 2020) | E. Taillard 1993, files and seeds | `solve --jobs 20 --machines 5 --seed 873654221` |
//! | [`golomb`] | a shortest ruler without equal distances | the smallest remaining distances | OEIS A003022 | `solve 10` |
//! | [`nqueens`] | the number of ways to place n queens | counting | OEIS A000170 | `solve 14` |
//! | [`numerical-semigroups`](numerical_semigroups) | the number of semigroups of a genus | counting (Fromentin and Hivert 2016) | OEIS A007323 | `solve 25` |
//! | [`uts`] | the size of an unbalanced tree | counting (Olivier and others 2006) | the trees of UTS | `solve T1` |
//!
//! As a model for your own problem: `knapsack` is the simplest, and reads files; `golomb` generates
//! children on demand; `maxclique` and `flowshop` change one state [in
//! place](bnb_framework::InPlace); `nqueens` counts.
//!
//! # Files
//!
//! Only complete and unambiguous files are accepted. A file that is truncated, repeats or adds something, or is
//! ambiguous is refused with the place and the expected content, since a proof about another instance
//! than the intended one is worthless. Each format has a maximum size, and files must be UTF-8 text.

mod random;

pub mod knapsack;
pub mod maxclique;
pub mod qap;
pub mod flowshop;
pub mod golomb;
pub mod nqueens;
pub mod numerical_semigroups;
pub mod uts;
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
