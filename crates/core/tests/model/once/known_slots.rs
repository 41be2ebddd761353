//! The slots of a job that are known to be done, for the oracles of the model and of the
//! simulation.

/// Returns the slots that are known by themselves: the last one, the highest in order, and all
/// since the one before the first out of order. Also returns whether there was one out of order.
///
/// `done` has the runs that are done, in their order, each with its slot and whether it counts by
/// itself.
pub(crate) fn known_slots<'a>(done: impl Iterator<Item = (&'a str, bool)>) -> (Vec<&'a str>, bool) {
    let (mut known, mut apart, mut last, mut highest) = (Vec::new(), false, "", "");
    for (slot, by_itself) in done {
        if !apart && (by_itself || slot < highest) {
            (apart, known) = (true, vec![last]);
        }
        known.extend(apart.then_some(slot));
        last = slot;
        if !by_itself {
            highest = highest.max(slot);
        }
    }
    known.extend([last, highest]);
    (known, apart)
}
