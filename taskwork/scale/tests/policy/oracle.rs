//! An oracle that knows the tree: the best constant number of machines in hindsight.

use crate::{
    rivals::Fixed,
    world::{Outcome, World},
};

/// Returns the number of machines with the lowest total, and its outcome.
pub(crate) fn best_fixed(world: &World, max: u32, delay_price: f64) -> (u32, Outcome) {
    let mut best: Option<(u32, Outcome)> = None;
    let mut nodes = 1;
    let mut worse = 0;
    while nodes <= max {
        let outcome = world.run(&mut Fixed(nodes));
        let total = outcome.total(delay_price);
        match &best {
            Some((_, least)) if total >= least.total(delay_price) => worse += 1,
            _ => {
                best = Some((nodes, outcome));
                worse = 0;
            }
        }
        // The total has one minimum, apart from randomness.
        if worse >= 4 {
            break;
        }
        nodes = (nodes + 1).max((f64::from(nodes) * 1.2).round() as u32);
    }
    best.expect("at least one number was tried")
}
