//! Efficiency and transfers of the graph's schedules, on clusters in virtual time.

use super::{
    virtual_cluster::{Cluster, MEMORY, Ran},
    virtual_ideal::{list_schedule_ns, transfers_of_a_queue},
    virtual_program::Program,
};
use crate::{
    ids::{Argument, VersionId},
    options::Options,
};

const MS: u64 = 1_000_000;

/// Returns a cluster of nodes with four workers each in one data centre: a message takes 0.2 ms, and a connection
/// transfers 200 MB/s.
fn cluster(members: u32) -> Cluster {
    Cluster { members, workers: 4, latency_ns: 200_000, bytes_by_us: 200, head_ns: 10_000 }
}

/// The product of two matrices of `size` × `size` blocks of 320 kB. Each block product takes 40 ms.
fn product(size: usize) -> Program {
    let mut program = Program::default();
    let bytes = 320_000;
    let mut matrix = || -> Vec<Vec<VersionId>> {
        (0..size).map(|_| (0..size).map(|_| program.one(0, &[], bytes)).collect()).collect()
    };
    let (a, b, mut c) = (matrix(), matrix(), matrix());
    for i in 0..size {
        for j in 0..size {
            for k in 0..size {
                program.update(40 * MS, &mut c[i][j], &[a[i][k], b[k][j]], bytes);
            }
        }
    }
    for block in c.into_iter().flatten() {
        program.drop(block);
    }
    program
}

/// Returns whether a block of the factorised matrix is initially empty (the pattern of BOTS).
fn is_empty(row: usize, column: usize) -> bool {
    if row.abs_diff(column) <= 1 {
        return false;
    }
    let sparse = (row < column && !row.is_multiple_of(3)) || (row > column && !column.is_multiple_of(3));
    sparse || row % 2 == 1 || column % 2 == 1
}

/// The LU factorisation of a sparse matrix of `size` × `size` blocks. Each call takes 20 ms.
fn lu(size: usize, bytes: u64) -> Program {
    let mut program = Program::default();
    let ns = 20 * MS;
    let mut a: Vec<Vec<Option<VersionId>>> = (0..size)
        .map(|row| {
            (0..size).map(|column| (!is_empty(row, column)).then(|| program.one(ns, &[], bytes))).collect()
        })
        .collect();
    for k in 0..size {
        let (above, below) = a.split_at_mut(k + 1);
        let row = &mut above[k];
        let pivot = row[k].as_mut().expect("the diagonal is full");
        program.update(ns, pivot, &[], bytes);
        let pivot = *pivot;
        for right in row[k + 1..].iter_mut().flatten() {
            program.update(ns, right, &[pivot], bytes);
        }
        for other in below {
            let Some(left) = &mut other[k] else { continue };
            program.update(ns, left, &[pivot], bytes);
            let left = *left;
            for (inner, above) in other[k + 1..].iter_mut().zip(&row[k + 1..]) {
                match (inner, above) {
                    (_, None) => {}
                    (Some(inner), Some(above)) => program.update(ns, inner, &[left, *above], bytes),
                    (inner, Some(above)) => *inner = Some(program.one(ns, &[left, *above], bytes)),
                }
            }
        }
    }
    a.into_iter().flatten().flatten().for_each(|block| program.drop(block));
    program
}

/// K-means: in each round, calls of 20 ms on the fragments, and a reduction of their small results.
fn means(fragments: usize, rounds: usize) -> Program {
    let mut program = Program::default();
    let points: Vec<_> = (0..fragments).map(|_| program.one(0, &[], 500_000)).collect();
    let mut centres = program.data(16_000);
    for _ in 0..rounds {
        program.task = 1;
        let sums = points.iter().map(|points| program.one(20 * MS, &[*points, centres], 20_000)).collect();
        program.task = 2;
        let total = program.reduce(10_000, sums, 20_000);
        program.get(total);
        program.drop(total);
        program.drop(centres);
        centres = program.data(16_000);
    }
    program
}

/// One round of k-means on fragments that the program has created, so that its member has all of them.
fn means_of_the_program(fragments: usize) -> Program {
    let mut program = Program::default();
    let points: Vec<_> = (0..fragments).map(|_| program.data(1_000)).collect();
    // Earlier calls have taken almost no time, like calls that create data.
    program.task = 3;
    let made: Vec<_> = (0..100).map(|_| program.one(1_000, &[], 1_000)).collect();
    for made in made {
        program.get(made);
    }
    program.task = 1;
    let sums = points.iter().map(|points| program.one(20 * MS, &[*points], 20_000)).collect();
    program.task = 2;
    let total = program.reduce(1_000, sums, 20_000);
    program.get(total);
    program
}

/// Discrete: the simulations of ten proteins with 27 configurations each (Tejedor 2013, section 4.5.1.1 and appendix
/// A.2), in 586 calls whose data are files.
fn discrete() -> Program {
    let (structures, configurations) = (10, 27);
    let mut program = Program::default();
    let setups: Vec<_> = (0..structures)
        .map(|_| {
            let file = program.data(500_000);
            let made = program.call(5_000 * MS, vec![Argument::Read(file)], &[500_000; 2]);
            program.call(5_000 * MS, made.into_iter().map(Argument::Read).collect(), &[500_000; 2])
        })
        .collect();
    let potentials = program.data(500_000);
    let mut scores = Vec::new();
    for configuration in 0..configurations {
        let parameters = program.data(500_000);
        program.task = 1;
        let averages = setups.iter().enumerate().map(|(number, setup)| {
            // Between one and two minutes.
            let ns = (60 + (number * 7 + configuration * 11) as u64 % 60) * 1_000 * MS;
            program.one(ns, &[parameters, setup[0], setup[1]], 500_000)
        });
        let averages = averages.collect();
        program.task = 2;
        let average = program.reduce(1_000 * MS, averages, 500_000);
        program.task = 3;
        let scored =
            program.call(1_000 * MS, [average, potentials].map(Argument::Read).to_vec(), &[500_000; 2]);
        scores.push(scored[1]);
    }
    program.task = 2;
    let best = program.reduce(1_000 * MS, scores, 500_000);
    program.get(best);
    program
}

fn show(what: &str, cluster: Cluster, ran: Ran, work_ns: u64) -> f64 {
    let Ran { ns, transfers, bytes } = ran;
    let efficiency = cluster.efficiency(work_ns, ran);
    let (seconds, megabytes) = (ns as f64 / 1e9, bytes / 1_000_000);
    println!("{what}: {seconds:.3} s, efficiency {efficiency:.3}, {transfers} transfers, {megabytes} MB");
    efficiency
}

fn efficiency(what: &str, cluster: Cluster, program: Program) -> f64 {
    let work_ns = program.work_ns();
    show(what, cluster, cluster.run(program), work_ns)
}

#[test]
fn matrix_product_keeps_256_workers_busy() {
    assert!(efficiency("product, 256 workers", cluster(64), product(32)) >= 0.95);
}

#[test]
fn matrix_product_keeps_1024_workers_busy() {
    assert!(efficiency("product, 1,024 workers", cluster(256), product(40)) >= 0.90);
}

#[test]
fn kmeans_rounds_keep_64_workers_busy() {
    assert!(efficiency("k-means, 64 workers", cluster(16), means(4096, 3)) >= 0.95);
}

/// Completions of short calls must not make a member hoard long ones.
#[test]
fn kmeans_data_on_one_member_keeps_64_workers_busy() {
    let rounds = means_of_the_program(4096);
    assert!(efficiency("k-means of the program's data, 64 workers", cluster(16), rounds) >= 0.90);
}

/// Returns the duration of the list schedule of the factorisation, divided by that of the graph's schedule.
fn lu_against_the_list(cluster: Cluster) -> f64 {
    let program = lu(64, 20_000);
    let workers = cluster.members * cluster.workers;
    let list_ns = list_schedule_ns(&program, workers);
    let (work_ns, ran) = (program.work_ns(), cluster.run(program));
    show(&format!("sparse LU, {} members, {workers} workers", cluster.members), cluster, ran, work_ns);
    println!("{:.3} of the list", list_ns as f64 / ran.ns as f64);
    list_ns as f64 / ran.ns as f64
}

#[test]
fn sparse_lu_on_32_workers_is_near_list_schedule() {
    assert!(lu_against_the_list(cluster(8)) >= 0.97);
}

#[test]
fn sparse_lu_on_64_workers_is_near_list_schedule() {
    assert!(lu_against_the_list(cluster(16)) >= 0.97);
}

#[test]
fn sparse_lu_on_128_workers_is_near_list_schedule() {
    assert!(lu_against_the_list(cluster(32)) >= 0.97);
    assert!(lu_against_the_list(Cluster { workers: 128, ..cluster(1) }) >= 0.97);
}

#[test]
fn discrete_placement_saves_two_thirds_of_transfers() {
    let program = discrete();
    let without = transfers_of_a_queue(&program, 8);
    let cluster = Cluster { workers: 1, ..cluster(8) };
    let work_ns = program.work_ns();
    let ran = cluster.run(program);
    show("Discrete, 8 workers", cluster, ran, work_ns);
    println!("a queue moves {without}");
    assert!(ran.transfers * 3 <= without as u64, "{} of {without}", ran.transfers);
}

/// Compares the schedule of a program with those of the same program whose calls have a demand that every member meets.
fn check_demands(what: &str, cluster: Cluster, program: impl Fn() -> Program) {
    let (work_ns, plain) = (program().work_ns(), cluster.run(program()));
    show(&format!("{what}, plain"), cluster, plain, work_ns);
    let memory = MEMORY / u64::from(cluster.workers);
    for (needs, memory) in [(&["blast"][..], 0), (&[][..], memory), (&["blast"][..], memory)] {
        let ran = cluster.run(program().with(Options { memory, needs, ..Options::DEFAULT }));
        show(&format!("{what}, {needs:?}, {memory} bytes"), cluster, ran, work_ns);
        assert!(ran.ns as f64 <= 1.03 * plain.ns as f64, "{ran:?}, and {plain:?} without demands");
        assert!(ran.bytes as f64 <= 1.1 * plain.bytes as f64, "{ran:?}, and {plain:?} without demands");
    }
}

#[test]
fn lu_calls_with_met_demands_run_like_plain_ones() {
    check_demands("LU", cluster(16), || lu(48, 20_000));
}

#[test]
fn kmeans_calls_with_met_demands_run_like_plain_ones() {
    check_demands("k-means", cluster(16), || means(4096, 3));
}
