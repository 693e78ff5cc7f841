//! Problems with published answers on the branch-and-bound framework: each a module, a page or two, and a
//! program of its name.
//!
//! ```text
//! cargo run --release -p bnb-problems --bin maxclique -- solve brock400_4.clq
//! ```
//!
//! Every program has `solve`, and `node` and `submit` for a cluster; `--help` lists what can be chosen of a
//! search.
//!
//! | program | sought | by | published answers | for example |
//! |---|---|---|---|---|
//! | [`knapsack`] | the most valuable items that fit | the room filled up, the last item in part (Dantzig 1957) | D. Pisinger's instances | `solve knapPI_1_100_1000_1` |
//! | [`maxclique`] | a largest clique, or a heaviest (`--weighted`) | colours (Tomita and Seki 2003, San Segundo 2011, Kumlander 2004) | DIMACS | `solve brock400_4.clq` |
//! | [`qap`] | facilities placed so that flows go short ways | assignments (Gilmore 1962, Lawler 1963) | QAPLIB | `solve nug15.dat` |
//! | [`flowshop`] | jobs ordered so that the last is done early | each machine alone, from both ends (Gmys and others 2020) | E. Taillard 1993, files and seeds | `solve --jobs 20 --machines 5 --seed 873654221` |
//! | [`golomb`] | a shortest ruler without equal distances | the smallest distances that are left | OEIS A003022 | `solve 10` |
//! | [`nqueens`] | how many ways to place n queens | counted | OEIS A000170 | `solve 14` |
//! | [`numerical-semigroups`](numerical_semigroups) | how many of a genus | counted (Fromentin and Hivert 2016) | OEIS A007323 | `solve 25` |
//! | [`uts`] | how large an unbalanced tree is | counted (Olivier and others 2006) | the trees of UTS | `solve T1` |
//!
//! What to look at for a problem of one's own: `knapsack` and `qap` are the simplest, and read files;
//! `golomb` makes its children when they are wanted; `maxclique` and `flowshop` change one state [in
//! place](bnb_framework::Children::IN_PLACE); `nqueens` counts.
//!
//! # Files
//!
//! A file is read only if it is whole and plain: what was cut, stands there twice, follows after the end or
//! may mean two things is refused with its place and with what was expected, since a proof about another
//! instance than the one that was meant is worth nothing. Each format has a largest file, and must be text in
//! UTF-8.

pub mod knapsack;
pub mod maxclique;
pub mod qap;
pub mod flowshop;
pub mod golomb;
pub mod nqueens;
pub mod numerical_semigroups;
pub mod uts;
