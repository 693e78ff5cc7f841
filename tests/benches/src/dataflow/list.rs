//! The list schedule of the sparse LU factorisation: its duration on a number of processors if each call
//! takes one unit and nothing else costs anything. Of the ready calls, those with the longest path to the end
//! run first.

use std::collections::BinaryHeap;

use dataflow_examples::sparse_lu::is_empty;

/// The calls of a program, with the dependencies of each.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    needs: Vec<Vec<usize>>,
}

impl Calls {
    fn call(&mut self, needs: impl IntoIterator<Item = usize>) -> usize {
        self.needs.push(needs.into_iter().collect());
        self.needs.len() - 1
    }

    /// Returns the calls of the factorisation of a matrix with this many blocks in each direction.
    #[allow(clippy::needless_range_loop, reason = "as in the books")]
    pub(crate) fn of_lu(blocks: usize) -> Self {
        let mut calls = Self::default();
        // The call that has last written each block.
        let mut last: Vec<Vec<Option<usize>>> = (0..blocks)
            .map(|row| (0..blocks).map(|column| (!is_empty(row, column)).then(|| calls.call([]))).collect())
            .collect();
        for k in 0..blocks {
            let pivot = calls.call(last[k][k]);
            last[k][k] = Some(pivot);
            for j in k + 1..blocks {
                last[k][j] = last[k][j].map(|right| calls.call([pivot, right]));
            }
            for i in k + 1..blocks {
                last[i][k] = last[i][k].map(|below| calls.call([pivot, below]));
                let Some(left) = last[i][k] else { continue };
                for j in k + 1..blocks {
                    let Some(above) = last[k][j] else { continue };
                    last[i][j] = Some(calls.call([left, above].into_iter().chain(last[i][j])));
                }
            }
        }
        calls
    }

    pub(crate) fn len(&self) -> usize {
        self.needs.len()
    }

    /// Returns the length of the list schedule on this many processors, in units.
    pub(crate) fn schedule(&self, processors: usize) -> usize {
        let mut needed_by = vec![Vec::new(); self.len()];
        for (call, needs) in self.needs.iter().enumerate() {
            for need in needs {
                needed_by[*need].push(call);
            }
        }
        // Calls come after their dependencies.
        let mut level = vec![1; self.len()];
        for call in (0..self.len()).rev() {
            level[call] += needed_by[call].iter().map(|next| level[*next]).max().unwrap_or(0);
        }
        let mut missing: Vec<usize> = self.needs.iter().map(Vec::len).collect();
        let mut ready: BinaryHeap<_> =
            (0..self.len()).filter(|call| missing[*call] == 0).map(|call| (level[call], call)).collect();
        let mut units = 0;
        while !ready.is_empty() {
            units += 1;
            let run: Vec<_> = (0..processors).map_while(|_| ready.pop()).collect();
            for next in run.iter().flat_map(|(_, call)| &needed_by[*call]) {
                missing[*next] -= 1;
                if missing[*next] == 0 {
                    ready.push((level[*next], *next));
                }
            }
        }
        units
    }
}

#[cfg(test)]
mod tests {
    use super::Calls;

    #[test]
    fn schedules_are_at_least_longest_chain_and_work() {
        let calls = Calls::of_lu(64);
        // The number of calls according to Tejedor (2013, section 5.5).
        assert_eq!(calls.len(), 24_510);
        assert_eq!(calls.schedule(1), 24_510);
        assert_eq!(calls.schedule(usize::MAX), 191);
        for processors in [32, 64, 128] {
            let units = calls.schedule(processors);
            assert!(units >= 24_510_usize.div_ceil(processors) && units >= 191, "{processors}: {units}");
        }
    }
}
