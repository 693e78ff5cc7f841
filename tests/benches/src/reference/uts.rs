//! Handwritten UTS: a sequential loop, `join` of rayon, and deques of crossbeam. Nodes and hashes are those
//! of `bnb_problems::uts`.

use std::{
    hint,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
};

use bnb_problems::uts::{Node, Uts};
use crossbeam_deque::{Steal, Stealer, Worker};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Returns the number of nodes, by a loop over a stack.
pub(crate) fn sequential(tree: &Uts) -> u64 {
    let mut open = vec![tree.first()];
    let mut nodes = 0;
    while let Some(node) = open.pop() {
        nodes += 1;
        for number in 0..tree.children(&node) {
            open.push(node.child(number));
        }
    }
    nodes
}

/// Creates threads for [`by_join`], with stacks for the deepest tree.
///
/// # Panics
/// If they cannot be started.
pub(crate) fn threads(count: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(count).stack_size(1 << 30).build().expect("threads can be started")
}

/// Returns the number of nodes, by `join` of halves of the children.
pub(crate) fn by_join(tree: &Uts, threads: &ThreadPool) -> u64 {
    fn below(tree: &Uts, node: &Node) -> u64 {
        match tree.children(node) {
            0 => 1,
            children => 1 + among(tree, node, 0, children),
        }
    }
    fn among(tree: &Uts, parent: &Node, from: u32, to: u32) -> u64 {
        if to - from == 1 {
            return below(tree, &parent.child(from));
        }
        let middle = from.midpoint(to);
        let (a, b) = rayon::join(|| among(tree, parent, from, middle), || among(tree, parent, middle, to));
        a + b
    }
    threads.install(|| below(tree, &tree.first()))
}

/// Returns the number of nodes, by workers with a deque each that steal from each other.
///
/// # Panics
/// If a thread panics.
pub(crate) fn by_deques(tree: &Uts, workers: usize) -> u64 {
    let deques: Vec<Worker<Node>> = (0..workers).map(|_| Worker::new_lifo()).collect();
    let stealers: Vec<Stealer<Node>> = deques.iter().map(Worker::stealer).collect();
    deques[0].push(tree.first());
    let idle = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (stealers, idle) = (&stealers, &idle);
        let work = |(me, open): (usize, Worker<Node>)| {
            scope.spawn(move || {
                let mut nodes = 0;
                loop {
                    while let Some(node) = open.pop() {
                        nodes += 1;
                        for number in 0..tree.children(&node) {
                            open.push(node.child(number));
                        }
                    }
                    let others = || stealers.iter().enumerate().filter(|(other, _)| *other != me);
                    idle.fetch_add(1, SeqCst);
                    loop {
                        if others().any(|(_, other)| !other.is_empty()) {
                            idle.fetch_sub(1, SeqCst);
                            let stolen =
                                others().find_map(|(_, other)| match other.steal_batch_and_pop(&open) {
                                    Steal::Success(node) => Some(node),
                                    Steal::Empty | Steal::Retry => None,
                                });
                            if let Some(node) = stolen {
                                open.push(node);
                                break;
                            }
                            idle.fetch_add(1, SeqCst);
                        }
                        if idle.load(SeqCst) == workers {
                            return nodes;
                        }
                        hint::spin_loop();
                    }
                }
            })
        };
        let threads: Vec<_> = deques.into_iter().enumerate().map(work).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    })
}
