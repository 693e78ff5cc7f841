//! Local search where directions do not matter: 2-opt and Or-opt with neighbour lists and don't-look bits (J.
//! L. Bentley, *Fast algorithms for geometric traveling salesman problems*, 1992).

use super::{agenda::Agenda, near::Near, order::Order};
use crate::instance::{City, Instance};

/// The maximum length of a chain of cities that Or-opt moves.
const CHAIN_MAX: usize = 3;

/// Tries to improve a tour at a city. Returns by how much it has become shorter, and puts the ends of the
/// changed edges on the agenda.
pub(super) fn improve_at(
    instance: &Instance,
    near: &Near,
    order: &mut Order,
    city: City,
    agenda: &mut Agenda,
) -> Option<i64> {
    two_opt(instance, near, order, city, agenda).or_else(|| or_opt(instance, near, order, city, agenda))
}

#[allow(clippy::many_single_char_names, reason = "cities, as the literature names them")]
fn two_opt(instance: &Instance, near: &Near, order: &mut Order, a: City, agenda: &mut Agenda) -> Option<i64> {
    let d = |i, j| i64::from(instance.distance(i, j));
    for forwards in [true, false] {
        let beside = |city| if forwards { order.next(city) } else { order.previous(city) };
        let b = beside(a);
        for &c in near.of(a) {
            let c = c as usize;
            let gain = d(a, b) - d(a, c);
            if gain <= 0 {
                break;
            }
            let e = beside(c);
            let gain = gain + d(c, e) - d(b, e);
            if gain > 0 && c != b && e != a {
                order.uncross([a, b, c, e]);
                agenda.extend([a, b, c, e]);
                return Some(gain);
            }
        }
    }
    None
}

/// Moves a chain of cities that ends with `a` to an edge near `a`.
fn or_opt(instance: &Instance, near: &Near, order: &mut Order, a: City, agenda: &mut Agenda) -> Option<i64> {
    let d = |i, j| i64::from(instance.distance(i, j));
    for forwards in [true, false] {
        let mut other = a;
        for length in 1..=CHAIN_MAX.min(order.len().saturating_sub(3)) {
            if length > 1 {
                other = if forwards { order.next(other) } else { order.previous(other) };
            }
            let (first, last) = if forwards { (a, other) } else { (other, a) };
            let (before, after) = (order.previous(first), order.next(last));
            let saved = d(before, first) + d(last, after) - d(before, after);
            let n = order.len();
            let is_in_chain = |city| (order.place(city) + n - order.place(first)) % n < length;
            for &c in near.of(a) {
                let c = c as usize;
                if d(a, c) >= saved {
                    break;
                }
                if is_in_chain(c) {
                    continue;
                }
                // The edge to move to, from `c` to its successor or from its predecessor to `c`.
                for (from, to) in [(c, order.next(c)), (order.previous(c), c)] {
                    if is_in_chain(from) || is_in_chain(to) || to == before {
                        continue;
                    }
                    let beyond = if from == c { to } else { from };
                    let gain = saved - d(a, c) - d(other, beyond) + d(from, to);
                    if gain > 0 {
                        // Reversed if `from` is followed by the last of the chain.
                        let reversed = (from == c) == (a == last);
                        order.uncross([before, first, from, to]);
                        order.uncross([before, from, after, last]);
                        if !reversed && first != last {
                            order.uncross([from, last, first, to]);
                        }
                        agenda.extend([before, first, last, after, from, to]);
                        return Some(gain);
                    }
                }
            }
        }
    }
    None
}
