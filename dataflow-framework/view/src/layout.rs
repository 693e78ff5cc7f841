//! The layout of a picture: groups in rows by their levels, ordered in each row so that few arrows cross.
//!
//! The order is found as usual in layered drawings (Sugiyama et al. 1981): in several sweeps, down and up, each group
//! moves to the mean position of its neighbours in other rows.

use std::collections::BTreeMap;

use crate::diagram::Diagram;

/// The number of sweeps over all rows.
const SWEEPS: usize = 6;

/// The height of a box. All lengths are in pixels.
pub(crate) const BOX_HEIGHT: f64 = 26.0;

/// The distance between the upper edges of two rows.
const ROW_HEIGHT: f64 = 64.0;

/// The width of a character.
const CHARACTER_WIDTH: f64 = 7.0;

/// The space around the text of a box.
const PADDING: f64 = 16.0;

/// The space between two boxes.
const GAP: f64 = 18.0;

/// The space around the picture.
pub(crate) const MARGIN: f64 = 20.0;

/// The positions of all boxes.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The box of each group.
    pub(crate) boxes: Vec<Place>,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// The upper left corner of a box, and its width.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Place {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
}

impl Place {
    pub(crate) fn middle(self) -> f64 {
        self.x + self.width / 2.0
    }
}

/// Computes the layout.
pub(crate) fn layout(diagram: &Diagram) -> Layout {
    let rows = ordered(diagram);
    let label_width = |text: &str| text.chars().count() as f64 * CHARACTER_WIDTH + PADDING;
    let width_of = |group: usize| label_width(&diagram.groups[group].label());
    let row_width =
        |row: &[usize]| row.iter().map(|group| width_of(*group) + GAP).sum::<f64>().max(GAP) - GAP;
    let widest = rows.iter().map(|row| row_width(row)).fold(label_width(&diagram.caption()), f64::max);
    let mut boxes = vec![Place::default(); diagram.groups.len()];
    for (number, row) in rows.iter().enumerate() {
        let mut x = MARGIN + (widest - row_width(row)) / 2.0;
        for group in row {
            let width = width_of(*group);
            boxes[*group] = Place { x, y: MARGIN + number as f64 * ROW_HEIGHT, width };
            x += width + GAP;
        }
    }
    let height = 2.0 * MARGIN + rows.len() as f64 * ROW_HEIGHT;
    Layout { boxes, width: widest + 2.0 * MARGIN, height }
}

/// Returns the groups of each row in order.
fn ordered(diagram: &Diagram) -> Vec<Vec<usize>> {
    let mut by_row = BTreeMap::<u32, Vec<usize>>::new();
    for (number, group) in diagram.groups.iter().enumerate() {
        by_row.entry(group.row).or_default().push(number);
    }
    let mut rows: Vec<Vec<usize>> = by_row.into_values().collect();
    let mut neighbours = vec![Vec::new(); diagram.groups.len()];
    for arrow in diagram.sound_arrows() {
        neighbours[arrow.from].push(arrow.to);
        neighbours[arrow.to].push(arrow.from);
    }
    // The position of each group in its row, from 0 to 1.
    let mut places = vec![0.0; diagram.groups.len()];
    for row in &rows {
        settle(row, &mut places);
    }
    for sweep in 0..SWEEPS {
        let order: Vec<usize> = match sweep % 2 {
            0 => (0..rows.len()).collect(),
            _ => (0..rows.len()).rev().collect(),
        };
        for row in order {
            let wanted = |group: &usize| match &neighbours[*group][..] {
                [] => places[*group],
                all => all.iter().map(|other| places[*other]).sum::<f64>() / all.len() as f64,
            };
            let mut keyed: Vec<_> = rows[row].iter().map(|group| (wanted(group), *group)).collect();
            keyed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            rows[row] = keyed.into_iter().map(|(_, group)| group).collect();
            settle(&rows[row], &mut places);
        }
    }
    rows
}

/// Records the positions of the groups of a row.
fn settle(row: &[usize], places: &mut [f64]) {
    for (position, group) in row.iter().enumerate() {
        places[*group] = (position as f64 + 0.5) / row.len() as f64;
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::{BOX_HEIGHT, layout};
    use crate::{Call, Calls, Diagram, State};

    fn diagram(levels: &[u32], reads: Vec<(u32, u32)>) -> Diagram {
        let calls = levels.iter().zip(0..).map(|(level, number)| Call {
            number,
            task: 0,
            level: *level,
            state: State::Waiting,
        });
        Calls { tasks: vec!["task".to_owned()], calls: calls.collect(), reads, omitted: 0 }.diagram()
    }

    #[test]
    fn layout_without_crossings_is_found() {
        // Three chains, with their calls on the second level made in reverse order.
        let laid_out = layout(&diagram(&[0, 0, 0, 1, 1, 1], vec![(0, 5), (1, 4), (2, 3)]));
        let chains = [(0, 5), (1, 4), (2, 3)];
        for (upper, lower) in chains {
            for (other_upper, other_lower) in chains {
                let is_left =
                    |one: usize, other: usize| laid_out.boxes[one].middle() < laid_out.boxes[other].middle();
                assert_eq!(is_left(upper, other_upper), is_left(lower, other_lower));
            }
        }
    }

    proptest! {
        #[test]
        fn boxes_do_not_overlap_and_are_within_the_picture(
            levels in vec(0..6_u32, 0..60),
            reads in vec((0..60_u32, 0..60_u32), 0..120),
        ) {
            let laid_out = layout(&diagram(&levels, reads));
            for (number, one) in laid_out.boxes.iter().enumerate() {
                prop_assert!(one.x >= 0.0 && one.x + one.width <= laid_out.width);
                prop_assert!(one.y >= 0.0 && one.y + BOX_HEIGHT <= laid_out.height);
                for other in &laid_out.boxes[number + 1..] {
                    let beside = one.x + one.width <= other.x || other.x + other.width <= one.x;
                    let above = (one.y - other.y).abs() >= BOX_HEIGHT;
                    prop_assert!(beside || above, "{one:?} {other:?}");
                }
            }
        }
    }
}
