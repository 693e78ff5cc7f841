/* Accounting: is every task complete? Two nodes, three tasks, commits whose answers are lost.
 *
 *   root ── splits off ──▶ a, which the other node steals ── splits off ──▶ b, which comes back
 *
 * Each task's id is toggled twice in the list: for its own completion, and for its parent's. The root's parent half is there from the
 * beginning. A node toggles in a batch first, where what is toggled twice is gone; a batch is committed in one transaction, which
 * carries a number: a try that finds its number committed does nothing. The number before is taken away by the next transaction.
 *
 * Asserted: when the list is empty every task is complete. And the list is empty in the end. It is zk/src/accounting.rs and
 * taskwork/core/src/accounting.rs in small. Checked by tests/scenarios/models.rs, also with each of these bugs, which must be found.
 *
 *   BUG_SPLIT     a child's half is toggled when it is split off, by its parent's node, instead of with its parent's completion
 *   BUG_TWICE     a try does not look whether its number is committed
 *   BUG_FRESH     a try that is repeated has a number of its own
 *   BUG_BATCH     a batch is emptied when it is tried, not when it is committed
 */

#define ROOT 0
#define A 1
#define B 2
#define TASKS 3
#define NODES 2
#define UNKNOWN 2

/* The global task list: ids that were toggled an odd number of times. */
bool list[TASKS];
bool complete[TASKS];
/* Where each task is; NODES for one that is nowhere yet. */
byte at[TASKS];
/* The last number committed of each node, from 1. */
byte committed[NODES];
byte unknowns = UNKNOWN;
bool over = false;
bool moved = false;

#define empty_list() (!list[ROOT] && !list[A] && !list[B])
#define all_complete() (complete[ROOT] && complete[A] && complete[B])

inline toggle(task) { batch[task] = !batch[task] }

/* What the servers do with a transaction: all of it or nothing. */
inline apply() {
	if
#ifdef BUG_TWICE
	:: true ->
#else
	:: committed[me] < number ->
#endif
		committed[me] = number;
		k = 0;
		do
		:: k < TASKS -> list[k] = list[k] ^ sent[k]; k++
		:: else -> k = 0; break
		od
#ifndef BUG_TWICE
	:: else
#endif
	fi
}

proctype node(byte me) {
	bool batch[TASKS], sent[TASKS];
	byte number = 1, k;
	bool trying = false;
	do
	/* The root's task splits off a, which goes to the other node. */
	:: atomic { at[ROOT] == me && !complete[ROOT] && at[A] == NODES ->
		at[A] = 1 - me;
#ifdef BUG_SPLIT
		toggle(A)
#endif
		}
	:: atomic { at[A] == me && !complete[A] && at[B] == NODES ->
		at[B] = 1 - me;
#ifdef BUG_SPLIT
		toggle(B)
#endif
		}
	/* The root's task moves to the other node, once, with the ids of its children. */
	:: atomic { at[ROOT] == me && !complete[ROOT] && at[A] != NODES && !moved -> moved = true; at[ROOT] = 1 - me }
	/* Completions: the own half, and those of the children. */
	:: atomic { at[ROOT] == me && !complete[ROOT] && at[A] != NODES ->
		complete[ROOT] = true; toggle(ROOT);
#ifndef BUG_SPLIT
		toggle(A)
#endif
		}
	:: atomic { at[A] == me && !complete[A] && at[B] != NODES ->
		complete[A] = true; toggle(A);
#ifndef BUG_SPLIT
		toggle(B)
#endif
		}
	:: atomic { at[B] == me && !complete[B] -> complete[B] = true; toggle(B) }
	/* A batch becomes a transaction; one at a time. */
	:: atomic { !trying && (batch[ROOT] || batch[A] || batch[B]) ->
		k = 0;
		do :: k < TASKS -> sent[k] = batch[k]; batch[k] = false; k++ :: else -> k = 0; break od;
		trying = true }
	/* A try is answered, */
	:: atomic { trying -> apply(); trying = false; number++;
		k = 0;
		do :: k < TASKS -> sent[k] = false; k++ :: else -> k = 0; break od }
	/* or its answer is lost after it was done, or before. It is tried again. */
	:: atomic { trying && unknowns > 0 -> apply(); unknowns--;
#ifdef BUG_FRESH
		number++
#endif
		}
	:: atomic { trying && unknowns > 0 -> unknowns--;
#ifdef BUG_BATCH
		trying = false
#endif
		}
	:: over -> break
	od
}

/* The leader: ends the job when the list is empty. */
proctype leader() {
	atomic { empty_list() -> assert(all_complete()); over = true }
}

init {
	atomic {
		list[ROOT] = true;
		at[ROOT] = 0; at[A] = NODES; at[B] = NODES;
		run node(0); run node(1); run leader()
	}
}

ltl ends { <> over }
