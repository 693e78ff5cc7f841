//! Local search where directions matter: adjacent segments are exchanged, which keeps the direction of every
//! arc but three (the pure form of 3-opt; P.-C. Kanellakis and C. H. Papadimitriou, *Local search for the
//! asymmetric traveling salesman problem*, 1980).

use super::{agenda::Agenda, near::Near, order::Order};
use crate::instance::{City, Instance};

/// Tries to improve a tour at the arc from a city. Returns by how much it has become shorter, and puts the
/// ends of the changed arcs on the agenda.
#[allow(clippy::many_single_char_names, reason = "cities, as the literature names them")]
pub(super) fn improve_at(
    instance: &Instance,
    [after, before]: [&Near; 2],
    order: &mut Order,
    a: City,
    agenda: &mut Agenda,
) -> Option<i64> {
    let d = |i, j| i64::from(instance.distance(i, j));
    let n = order.len();
    let b = order.next(a);
    let from_a = |city| (order.place(city) + n - order.place(a)) % n;
    // The arcs a→b, c→e and f→g, in this order, become a→e, f→b and c→g.
    for &e in after.of(a) {
        let e = e as usize;
        let gain = d(a, b) - d(a, e);
        if gain <= 0 {
            break;
        }
        if e == b {
            continue;
        }
        let c = order.previous(e);
        let gain = gain + d(c, e);
        for &f in before.of(b) {
            let f = f as usize;
            let gain = gain - d(f, b);
            if gain <= 0 {
                break;
            }
            if f == a || from_a(f) < from_a(e) {
                continue;
            }
            let g = order.next(f);
            let gain = gain + d(f, g) - d(c, g);
            if gain > 0 {
                let mut places = [order.place(a), order.place(c), order.place(f)];
                places.sort_unstable();
                order.exchange(places[0], places[1], places[2]);
                agenda.extend([a, b, c, e, f, g]);
                return Some(gain);
            }
        }
    }
    None
}
