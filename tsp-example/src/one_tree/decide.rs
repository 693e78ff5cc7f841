//! What to decide next: about the edges of a city that has too many in the one-tree.

use super::{edges::Edges, marginal::Marginals, tree::OneTree};
use crate::instance::City;

/// A city, and one or two of its free edges, those first that are missed most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) city: City,
    pub(super) free: Vec<City>,
}

/// The share of the distance to what is enough by which one more unit of bound counts.
fn patience() -> f64 { super::phase::tune_pub(13, 0.3) }

/// Chooses the city whose decision promises the fewest states below. `room` is how much the bound may rise
/// until a state is pruned. Returns `None` if the one-tree is a tour.
pub(super) fn decide(edges: &Edges, tree: &OneTree, marginals: &Marginals, room: i64) -> Option<Decision> {
    let cities = tree.degree.len();
    let mut free: Vec<Vec<(i64, City)>> = vec![Vec::new(); cities];
    for (&(i, j), &without) in tree.edges.iter().zip(&marginals.without) {
        if !edges.is_forced(i, j) {
            for (city, end) in [(i, j), (j, i)] {
                if tree.degree[city] > 2 {
                    free[city].push((without, end));
                }
            }
        }
    }
    let unit = patience() * (room.max(1) as f64);
    let choices = (0..cities).filter(|&city| tree.degree[city] > 2).map(|city| {
        let ends = &mut free[city];
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let missed = |place: usize| ends.get(place).map_or(0.0, |&(without, _)| without as f64);
        let after = |place: usize| ends.iter().skip(place).map(|&(without, _)| without as f64).sum();
        let states = |rises: &[f64]| -> f64 { rises.iter().map(|rise| (-rise / unit).exp()).sum() };
        let hardness = if edges.forced_count(city) == 0 {
            states(&[missed(0), missed(1), after(2)])
        } else {
            states(&[missed(0), after(1)])
        };
        (hardness, city)
    });
    let (_, city) = choices.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))?;
    let places = 2 - edges.forced_count(city).min(1) as usize;
    Some(Decision { city, free: free[city].iter().take(places).map(|&(_, end)| end).collect() })
}
