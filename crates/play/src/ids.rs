//! The ids in the names of nodes.

use alloc::string::String;

/// Bits 48 to 51, counted from the beginning, say what made an id: 8 stands for custom use.
const VERSION: u128 = 0x8 << 76;
/// The first two bits of the lower half are the same for every kind.
const VARIANT: u128 = 0b10 << 62;

/// Returns an id in its usual form. 122 bits of the number count.
pub(super) fn id_of(number: u128) -> String {
    let id = (number & !(0xf << 76) & !(0b11 << 62)) | VERSION | VARIANT;
    let mut text = String::with_capacity(36);
    for (at, byte) in id.to_be_bytes().into_iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        let digits = [byte >> 4, byte & 0xf].map(u32::from);
        text.extend(
            digits
                .into_iter()
                .filter_map(|digit| char::from_digit(digit, 16)),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use zklock_core::name::NodeName;

    #[test]
    fn ids_are_of_this_library_and_differ() {
        for number in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef << 40] {
            let name = format!("_c_{}-lock-0000000001", id_of(number));
            assert!(
                NodeName::parse(&name).is_some_and(|name| name.is_ours()),
                "{name}"
            );
        }
        assert_ne!(id_of(7), id_of(8));
        assert_eq!(id_of(7), "00000000-0000-8000-8000-000000000007");
    }
}
