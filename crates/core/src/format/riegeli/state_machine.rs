//! The state machine of a transposed chunk. It stores in few bytes which tag follows which.
//!
//! A transition names a state by its distance from the base of the state before it. The distance is at most 63. If some
//! tags often follow another tag, that tag gets a *private* list of states for them. All other tags share one *public*
//! list. A list of more than 64 states becomes a tree. Its inner nodes are states that do nothing, and the most
//! frequent tags are near the root. A decoder accepts any layout. This encoder produces the same bytes as the original.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const MAX_OFFSET: u32 = 63;
const BLOCK: usize = MAX_OFFSET as usize + 1;
/// A tag that follows another this often gets a state in the other's private list.
const FREQUENT: u64 = 10;
const NONE: u32 = u32::MAX;
/// The entry in a private list for all tags that are only in the public list.
const PUBLIC: u32 = u32::MAX;

/// A state: its tag, and where its transitions start.
#[derive(Clone, Copy)]
pub struct PlannedState {
    /// The tag. `None` for a state that does nothing.
    pub tag: Option<u32>,
    /// The base of the next state, as the header stores it.
    pub next: u32,
}

/// The finished machine.
pub struct Plan {
    /// Its states.
    pub states: Vec<PlannedState>,
    /// The state it starts in.
    pub first: u32,
    /// The transitions that reproduce the sequence.
    pub transitions: Vec<u8>,
}

/// How often the tag `to` follows another tag.
struct Edge {
    to: u32,
    count: u64,
    listed: bool,
    /// The state in the private list.
    state: u32,
}

struct Builder {
    tags: usize,
    edges: Vec<Edge>,
    /// For each tag, where its edges begin. The last entry is the number of all edges.
    first_edge: Vec<usize>,
    /// How often each tag is reached through the public list.
    incoming: Vec<u64>,
    /// Tag and base of each state.
    states: Vec<(Option<u32>, u32)>,
    /// For each state, the inner node whose block it is in.
    parents: Vec<u32>,
    /// For each tag, the base of the next state.
    bases: Vec<u32>,
    /// For each tag, the state in its private list that leads to the public one.
    exits: Vec<u32>,
    /// For each tag, its state in the public list.
    public: Vec<u32>,
    public_base: u32,
}

/// Plans a machine for a sequence of tags, each below `tags`, given in the order of the input.
pub fn plan(sequence: &[u32], tags: usize) -> Plan {
    let (Some(&input_first), Some(&input_last)) = (sequence.first(), sequence.last()) else {
        return Plan { states: vec![PlannedState { tag: None, next: 0 }], first: 0, transitions: Vec::new() };
    };
    let mut builder = Builder::count(sequence, tags);
    if builder.incoming[input_last as usize] == 0 {
        // No transition leads to the state in which decoding starts, but the state must exist.
        builder.incoming[input_last as usize] = 1;
    }
    builder.private_lists();
    builder.public_list();
    builder.missing_bases();

    // The machine stops when it needs a transition and none is left. So its last state must need one.
    let implicit = |tag: u32| builder.edges_of(tag).len() == 1 && tag != input_first;
    let transitions = builder.transitions(sequence, &implicit);
    let count = builder.states.len() as u32;
    let states = builder.states.iter().map(|&(tag, base)| {
        let base = tag.map_or(base, |tag| builder.bases[tag as usize]);
        let base = if base == NONE { 0 } else { base };
        PlannedState { tag, next: if tag.is_some_and(implicit) { base + count } else { base } }
    });
    let first = builder.states.iter().position(|&(tag, _)| tag == Some(input_last));
    Plan { states: states.collect(), first: first.unwrap_or(0) as u32, transitions }
}

impl Builder {
    fn count(sequence: &[u32], tags: usize) -> Self {
        // Decoding runs backwards: of two neighbours in the input, the first follows the second.
        let mut pairs: Vec<(u32, u32)> = sequence.windows(2).map(|pair| (pair[1], pair[0])).collect();
        pairs.sort_unstable();
        let mut edges: Vec<Edge> = Vec::new();
        let mut first_edge = Vec::with_capacity(tags + 1);
        let mut incoming = vec![0; tags];
        let mut last = None;
        for pair @ (from, to) in pairs {
            incoming[to as usize] += 1;
            if last == Some(pair) {
                if let Some(edge) = edges.last_mut() {
                    edge.count += 1;
                }
                continue;
            }
            last = Some(pair);
            first_edge.resize(from as usize + 1, edges.len());
            edges.push(Edge { to, count: 1, listed: false, state: NONE });
        }
        first_edge.resize(tags + 1, edges.len());
        Builder {
            tags,
            edges,
            first_edge,
            incoming,
            states: Vec::new(),
            parents: Vec::new(),
            bases: vec![NONE; tags],
            exits: vec![NONE; tags],
            public: vec![NONE; tags],
            public_base: 0,
        }
    }

    fn edge_range(&self, tag: u32) -> std::ops::Range<usize> {
        self.first_edge[tag as usize]..self.first_edge[tag as usize + 1]
    }

    fn edges_of(&self, tag: u32) -> &[Edge] {
        &self.edges[self.edge_range(tag)]
    }

    fn private_lists(&mut self) {
        for edge in self.edges.iter_mut().filter(|edge| edge.count >= FREQUENT) {
            edge.listed = true;
            self.incoming[edge.to as usize] -= edge.count;
        }
        for tag in 0..self.tags as u32 {
            let range = self.edge_range(tag);
            let (edges, incoming) = (&mut self.edges[range.clone()], &mut self.incoming);
            for edge in edges.iter_mut().filter(|edge| !edge.listed) {
                // No other tag leads there, so the public list does not need it.
                if edge.count == incoming[edge.to as usize] {
                    edge.listed = true;
                    incoming[edge.to as usize] = 0;
                }
            }
            if !edges.iter().any(|edge| edge.listed) {
                continue;
            }
            let mut excluded = edges.iter_mut().filter(|edge| !edge.listed);
            if let (Some(only), None) = (excluded.next(), excluded.next()) {
                // A state that leads to the public list would cost as much as a state for this tag.
                only.listed = true;
                incoming[only.to as usize] -= only.count;
            }
            let listed = edges.iter().filter(|edge| edge.listed);
            let mut entries: Vec<(u64, u32)> = listed.map(|edge| (edge.count, edge.to)).collect();
            let elsewhere: u64 = edges.iter().filter(|edge| !edge.listed).map(|edge| edge.count).sum();
            if elsewhere > 0 {
                entries.push((elsewhere, PUBLIC));
            }
            self.bases[tag as usize] = self.states.len() as u32;
            for (to, state) in self.lay_out(entries) {
                if to == PUBLIC {
                    self.exits[tag as usize] = state;
                } else if let Ok(found) = self.edges[range.clone()].binary_search_by_key(&to, |edge| edge.to)
                {
                    self.edges[range.start + found].state = state;
                }
            }
        }
    }

    fn public_list(&mut self) {
        self.public_base = self.states.len() as u32;
        let entries = (0..).zip(&self.incoming).filter(|&(_, &count)| count != 0);
        let entries = entries.map(|(tag, &count)| (count, tag)).collect();
        for (tag, state) in self.lay_out(entries) {
            self.public[tag as usize] = state;
        }
    }

    /// Appends states for entries of count and tag as a tree of blocks, the most frequent first. Returns the tags with
    /// their states.
    fn lay_out(&mut self, entries: Vec<(u64, u32)>) -> Vec<(u32, u32)> {
        let n = entries.len();
        let total = n + if n > BLOCK { (n - 2) / MAX_OFFSET as usize } else { 0 };
        let begin = self.states.len();
        self.states.resize(begin + total, (None, NONE));
        self.parents.resize(begin + total, NONE);
        // The heap returns the rarest entry first, and among equals the one with the largest tag.
        let mut heap: BinaryHeap<(Reverse<u64>, u32)> =
            entries.into_iter().map(|(count, tag)| (Reverse(count), tag)).collect();
        let mut placed = Vec::with_capacity(n);
        let mut inner: Vec<usize> = Vec::new();
        let (mut at, mut left_in_block, mut sum) = (begin + total, total.saturating_sub(1) % BLOCK + 1, 0);
        while let Some((Reverse(count), tag)) = heap.pop() {
            at -= 1;
            sum += count;
            left_in_block -= 1;
            if tag == PUBLIC {
                placed.push((tag, at as u32));
            } else if let Some(&base) = (tag as usize).checked_sub(self.tags).and_then(|i| inner.get(i)) {
                self.states[at] = (None, base as u32);
                let end = self.parents.len().min(base + BLOCK);
                self.parents[base..end].fill(at as u32);
            } else {
                self.states[at] = (Some(tag), NONE);
                placed.push((tag, at as u32));
            }
            if left_in_block == 0 && at > begin {
                heap.push((Reverse(sum), (self.tags + inner.len()) as u32));
                inner.push(at);
                (left_in_block, sum) = (BLOCK, 0);
            }
        }
        placed
    }

    /// Sets the bases that lead to the public list. Each is in the deepest block of the tree from which all targets can
    /// be reached.
    fn missing_bases(&mut self) {
        for tag in 0..self.tags as u32 {
            let exit = self.exits[tag as usize];
            if exit != NONE {
                self.states[exit as usize].1 = self.public_base_of(tag);
            } else if self.bases[tag as usize] == NONE {
                self.bases[tag as usize] = self.public_base_of(tag);
            }
        }
    }

    fn public_base_of(&self, tag: u32) -> u32 {
        let (mut base, mut lowest) = (NONE, NONE);
        for edge in self.edges_of(tag).iter().filter(|edge| edge.state == NONE) {
            let mut at = self.public[edge.to as usize];
            while base > at || at - base > MAX_OFFSET {
                if base <= at {
                    at = self.parents[at as usize];
                    continue;
                }
                let block = if base == NONE {
                    self.parents[at as usize]
                } else {
                    let parent = self.parents[base as usize];
                    lowest = lowest.min(parent);
                    self.parents[parent as usize]
                };
                base = if block == NONE { self.public_base } else { self.states[block as usize].1 };
            }
            lowest = lowest.min(at);
        }
        lowest
    }

    fn transitions(&self, sequence: &[u32], implicit: &dyn Fn(u32) -> bool) -> Vec<u8> {
        let mut out = Transitions::default();
        for pair in sequence.windows(2).rev() {
            let (from, to) = (pair[1], pair[0]);
            if implicit(from) {
                continue;
            }
            let mut base = self.bases[from as usize];
            let edges = self.edges_of(from);
            let private =
                edges.binary_search_by_key(&to, |edge| edge.to).map_or(NONE, |found| edges[found].state);
            let target = if private == NONE {
                let exit = self.exits[from as usize];
                if exit != NONE {
                    out.path(self, base, exit);
                    base = self.states[exit as usize].1;
                }
                self.public[to as usize]
            } else {
                private
            };
            out.path(self, base, target);
        }
        out.bytes
    }
}

#[derive(Default)]
struct Transitions {
    bytes: Vec<u8>,
    steps: Vec<u8>,
}

impl Transitions {
    /// Appends the steps from a base down the tree to a state.
    fn path(&mut self, builder: &Builder, base: u32, mut to: u32) {
        self.steps.clear();
        while to < base || to - base > MAX_OFFSET {
            let parent = builder.parents[to as usize];
            self.steps.push((to - builder.states[parent as usize].1) as u8);
            to = parent;
        }
        self.steps.push((to - base) as u8);
        for &offset in self.steps.iter().rev() {
            match self.bytes.last_mut() {
                // A byte holds its own step and up to three steps with offset 0 after it.
                Some(last) if offset == 0 && *last & 3 < 3 => *last += 1,
                _ => self.bytes.push(offset << 2),
            }
        }
    }
}
