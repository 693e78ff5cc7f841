//! The examples of the framework, as they are.

pub(crate) mod maxclique;
#[path = "../../../bnb-framework/examples/nqueens/board.rs"]
pub(crate) mod nqueens;
#[path = "../../../bnb-framework/examples/uts/tree.rs"]
pub(crate) mod uts;
