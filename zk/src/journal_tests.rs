//! The journal: one writer at a time, and every entry exactly once if any answer is lost.

use std::sync::Arc;

use super::*;
use crate::{
    CHUNK_BYTES_MAX, MemoryStore,
    testing::{FATES, Stage},
};

fn writer(node: &str, generation: u64) -> Writer {
    Writer { node: node.to_owned(), attempt: 1, generation }
}

async fn taken(stage: &Stage, store: &MemoryStore, writer: &Writer) -> Outcome<(Journal, Written)> {
    take(store, &stage.cluster, &stage.job, writer, &format!("key of {}", writer.node)).await
}

/// Repeats an append until its outcome is known.
async fn append(journal: &mut Journal, store: &MemoryStore, data: &[u8]) {
    loop {
        match journal.append(store, data).await {
            Err(JournalError::Store(error)) if error.is_transient() => {}
            outcome => return outcome.unwrap(),
        }
    }
}

async fn two() -> (Stage, Arc<MemoryStore>, Arc<MemoryStore>) {
    let stage = Stage::new().await;
    let (a, b) = (stage.member("a").await, stage.member("b").await);
    (stage, a, b)
}

#[tokio::test]
async fn next_writer_reads_everything_and_fences_previous_writer() {
    let (stage, a, b) = two().await;
    let (mut first, written) = taken(&stage, &a, &writer("a", 1)).await.unwrap();
    assert_eq!(written, Written { key: "key of a".to_owned(), ..Written::default() });
    let large = vec![7; 2 * CHUNK_BYTES_MAX + 1];
    for data in [b"one", &large[..], b""] {
        first.append(&*a, data).await.unwrap();
    }
    first.note(&*a, b"at 1").await.unwrap();
    first.note(&*a, b"at 2").await.unwrap();
    let (mut second, written) = taken(&stage, &b, &writer("b", 2)).await.unwrap();
    assert_eq!(written.key, "key of a");
    assert_eq!(written.entries, [b"one".to_vec(), large, Vec::new()]);
    assert_eq!(written.note.as_deref(), Some(&b"at 2"[..]));
    let before = stage.names("/taskwork");
    let late = vec![8; CHUNK_BYTES_MAX + 1];
    for data in [b"late", &late[..]] {
        assert_eq!(first.append(&*a, data).await, Err(JournalError::Replaced));
    }
    assert_eq!(first.note(&*a, b"late").await, Err(JournalError::Replaced));
    assert_eq!(first.forget_before(&*a, 2).await, Err(JournalError::Replaced));
    assert_eq!(stage.names("/taskwork"), before);
    second.append(&*b, b"two").await.unwrap();
    assert_eq!((second.next(), second.entries()), (4, 4));
}

#[tokio::test]
async fn earlier_writer_cannot_retake_journal_while_later_is_member() {
    let (stage, a, b) = two().await;
    let (mut second, _) = taken(&stage, &b, &writer("b", 2)).await.unwrap();
    assert_eq!(taken(&stage, &a, &writer("a", 1)).await.unwrap_err(), JournalError::Replaced);
    second.append(&*b, b"of b").await.unwrap();
    b.close().await.unwrap();
    // Knowledge of the later writer may be lost with it.
    let (_, written) = taken(&stage, &a, &writer("a", 1)).await.unwrap();
    assert_eq!(written.entries, [b"of b".to_vec()]);
}

#[tokio::test]
async fn non_member_neither_takes_nor_writes_journal() {
    let (stage, a, _b) = two().await;
    let (mut journal, _) = taken(&stage, &a, &writer("a", 1)).await.unwrap();
    stage.store.delete(&stage.cluster.member("a"), None).await.unwrap();
    assert_eq!(journal.append(&*a, b"x").await, Err(JournalError::NotMember));
    assert_eq!(taken(&stage, &a, &writer("a", 1)).await.unwrap_err(), JournalError::NotMember);
    let of_later = Writer { attempt: 2, ..writer("b", 1) };
    assert_eq!(taken(&stage, &a, &of_later).await.unwrap_err(), JournalError::AttemptOver);
}

#[tokio::test]
async fn entry_with_any_answer_lost_is_written_once() {
    for fate in FATES {
        for countdown in 1..12 {
            let (stage, a, b) = two().await;
            let is_lost = stage.lose_one(a.id(), countdown, fate);
            let mut journal = loop {
                match taken(&stage, &a, &writer("a", 1)).await {
                    Err(JournalError::Store(error)) if error.is_transient() => {}
                    outcome => break outcome.unwrap().0,
                }
            };
            let large = vec![3; CHUNK_BYTES_MAX + 1];
            for data in [b"1", &large[..], b"2"] {
                append(&mut journal, &a, data).await;
            }
            assert!(is_lost.load(std::sync::atomic::Ordering::Relaxed) || countdown > 9);
            let (_, written) = taken(&stage, &b, &writer("b", 2)).await.unwrap();
            assert_eq!(written.entries, [b"1".to_vec(), large, b"2".to_vec()], "{countdown}, {fate:?}");
        }
    }
}

#[tokio::test]
async fn summarized_entries_leave_no_znodes() {
    let (stage, a, b) = two().await;
    let (mut journal, _) = taken(&stage, &a, &writer("a", 1)).await.unwrap();
    for number in 0..2 * TOGETHER_MAX {
        journal.append(&*a, number.to_string().as_bytes()).await.unwrap();
    }
    journal.append(&*a, &vec![1; CHUNK_BYTES_MAX + 1]).await.unwrap();
    let summed_up = journal.next();
    journal.append(&*a, b"all of that").await.unwrap();
    journal.forget_before(&*a, summed_up).await.unwrap();
    assert_eq!(stage.names(&stage.cluster.job(&stage.job).journal()), [format!("e-{summed_up:010}")]);
    let (mut next, written) = taken(&stage, &b, &writer("b", 2)).await.unwrap();
    assert_eq!((written.entries, next.next()), (vec![b"all of that".to_vec()], summed_up + 1));
    next.append(&*b, b"more").await.unwrap();
}

#[tokio::test]
async fn journal_is_bounded_and_removed_with_its_job() {
    let (stage, a, _b) = two().await;
    let (mut journal, _) = taken(&stage, &a, &writer("a", 1)).await.unwrap();
    for _ in 0..JOURNAL_ENTRIES_MAX {
        journal.append(&*a, b"x").await.unwrap();
    }
    let full = journal.append(&*a, b"x").await.unwrap_err();
    assert!(matches!(full, JournalError::Full { entries, .. } if entries == JOURNAL_ENTRIES_MAX + 1));
    let note = vec![0; NOTE_BYTES_MAX + 1];
    assert!(matches!(
        journal.note(&*a, &note).await,
        Err(JournalError::Store(Error::TooLarge { limit: NOTE_BYTES_MAX, .. }))
    ));
    crate::job::forget(&*stage.store, &stage.cluster, &stage.job).await.unwrap();
    assert_eq!(stage.names(&stage.cluster.jobs()), [""; 0]);
    assert_eq!(journal.note(&*a, b"x").await, Err(JournalError::AttemptOver));
}
