//! What is known of one server's name, which keeps its addresses until it gets others.

use std::io;
use std::net::SocketAddr;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) under_way: bool,
    /// Why the last lookup found nothing.
    pub(super) complaint: Option<String>,
}

impl Lookup {
    pub(super) fn answered(&mut self, answer: io::Result<Vec<SocketAddr>>) {
        self.under_way = false;
        self.complaint = match answer {
            Ok(addresses) if addresses.is_empty() => Some("it has no address".to_owned()),
            Ok(addresses) => {
                self.addresses = addresses;
                None
            }
            Err(error) => Some(error.to_string()),
        };
    }

    /// Whether the addresses are those of the last lookup.
    pub(super) fn is_answered(&self) -> bool {
        !self.under_way && self.complaint.is_none()
    }

    /// Why the name is not resolved; `None` if it is.
    pub(super) fn reason(&self) -> Option<String> {
        match &self.complaint {
            Some(complaint) => Some(format!("the name cannot be resolved: {complaint}")),
            None if self.addresses.is_empty() => Some("the name is not resolved yet".to_owned()),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_addresses_until_there_are_others() {
        let mut name = Lookup::default();
        let (old, new) = (SocketAddr::from(([1; 4], 1)), SocketAddr::from(([2; 4], 1)));
        assert!(name.reason().is_some());
        name.answered(Ok(vec![old]));
        assert_eq!((&*name.addresses, name.reason()), (&[old][..], None));
        for nothing in [Ok(vec![]), Err(io::Error::other("no"))] {
            name.answered(nothing);
            assert_eq!((&*name.addresses, name.is_answered()), (&[old][..], false));
            assert!(name.reason().unwrap().starts_with("the name cannot"));
        }
        name.answered(Ok(vec![new]));
        assert_eq!((&*name.addresses, name.reason()), (&[new][..], None));
    }
}
