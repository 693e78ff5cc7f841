//! Problems with published answers: what is sought, bounds, readers, and for each the program of its name.
//!
//! ```text
//! cargo run --release -p bnb-problems --bin maxclique -- solve brock400_4.clq
//! ```

pub mod flowshop;
pub mod golomb;
pub mod knapsack;
pub mod maxclique;
pub mod nqueens;
pub mod numerical_semigroups;
pub mod qap;
pub mod uts;
