//! Checks of the leftovers of long runs.

use taskwork_simulation::long::{Leftovers, jobs_in_a_row, joins_and_leaves};

fn fine(left: &Leftovers) -> &Leftovers {
    assert_eq!(left.violations, Vec::<String>::new());
    left
}

#[test]
fn hundreds_of_jobs_leave_constant_data_and_no_memory() {
    let (some, many) = (jobs_in_a_row(20), jobs_in_a_row(300));
    let (some, many) = (fine(&some), fine(&many));
    let each = (many.znodes - some.znodes) as f64 / 280.0;
    // A job's folders, and for each of three nodes: its output, its last transaction, its mailbox, its
    // figures.
    println!("{each} znodes of each job: {some:?}, {many:?}");
    assert!(each < 35.0, "{each} znodes of each job: {some:?}, {many:?}");
    assert!(many.watches <= some.watches + 4, "{some:?}, {many:?}");
    assert!(many.under_way <= some.under_way + 64, "{some:?}, {many:?}");
}

#[test]
fn thousand_joins_and_leaves_leave_bounded_data() {
    let (some, many) = (joins_and_leaves(100), joins_and_leaves(1_000));
    let (some, many) = (fine(&some), fine(&many));
    let each = many.znodes.saturating_sub(some.znodes) as f64 / 900.0;
    // Its enrolment, its output, its clean leave, its mailbox, its figures.
    println!("{each} znodes of each node: {some:?}, {many:?}");
    assert!(each < 6.0, "{each} znodes of each node: {some:?}, {many:?}");
    let of_each = |left: &Leftovers| left.watches as f64 / left.members.max(1) as f64;
    assert!(of_each(many) < of_each(some) + 4.0, "{some:?}, {many:?}");
}
