//! The identities of a client, and what an access control list permits them.
//!
//! Known schemes: `world`, `auth` (the client that sets the list), `digest` and `ip`.

use std::net::IpAddr;
use std::sync::Arc;

use base64ct::{Base64, Encoding};
use sha1::{Digest, Sha1};

use zklock_jute::{Access, ErrorCode, Permissions};

/// The scheme of ZooKeeper's administrator.
const SUPER: &str = "super";

/// One identity of a client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    pub scheme: String,
    pub id: String,
}

impl Identity {
    fn new(scheme: &str, id: String) -> Self {
        let scheme = scheme.to_owned();
        Self { scheme, id }
    }

    /// Returns the identity that every client has.
    pub fn of_address(address: IpAddr) -> Self {
        Self::new("ip", address.to_string())
    }

    /// Returns an identity that may do everything.
    pub fn administrator() -> Self {
        Self::new(SUPER, String::new())
    }

    fn is_administrator(&self) -> bool {
        self.scheme == SUPER
    }

    /// Returns the identity of the credentials; `None` if the scheme is not known.
    pub fn of_credentials(scheme: &str, credentials: &[u8]) -> Option<Self> {
        (scheme == "digest").then(|| {
            let text = String::from_utf8_lossy(credentials);
            let user = text.split(':').next().unwrap_or_default();
            let hash = Base64::encode_string(&Sha1::digest(credentials));
            Self::new(scheme, format!("{user}:{hash}"))
        })
    }
}

/// An access control list; cheap to clone, because every change carries one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeAcl(Arc<[Access]>);

impl NodeAcl {
    /// Creates a list that gives every client these permissions.
    pub fn world(permissions: Permissions) -> Self {
        let anyone = Access {
            permissions,
            scheme: "world".to_owned(),
            id: "anyone".to_owned(),
        };
        Self(Arc::new([anyone]))
    }

    /// Returns the list as it is stored: without repetitions, and with the identities of the
    /// client in the place of `auth`.
    pub fn settle(asked: &[Access], who: &[Identity]) -> Result<Self, ErrorCode> {
        let mut settled = Vec::new();
        for (place, access) in asked.iter().enumerate() {
            if asked.iter().take(place).any(|before| before == access) {
                continue;
            }
            match access.scheme.as_str() {
                "world" if access.id == "anyone" => settled.push(access.clone()),
                "digest" if is_digest(&access.id) => settled.push(access.clone()),
                "ip" if network(&access.id).is_some() => settled.push(access.clone()),
                "auth" => settled.extend(authenticated(who)?.map(|own| Access {
                    permissions: access.permissions,
                    scheme: own.scheme.clone(),
                    id: own.id.clone(),
                })),
                _ => return Err(ErrorCode::INVALID_ACL),
            }
        }
        if settled.is_empty() {
            return Err(ErrorCode::INVALID_ACL);
        }
        Ok(Self(settled.into()))
    }

    /// Fails unless one of the identities has one of the permissions `wanted`.
    pub fn check(&self, wanted: i32, who: &[Identity]) -> Result<(), ErrorCode> {
        let allows = |access: &Access| access.permissions.0 & wanted != 0 && is_among(access, who);
        if who.iter().any(Identity::is_administrator) || self.0.iter().any(allows) {
            Ok(())
        } else {
            Err(ErrorCode::NO_AUTH)
        }
    }

    /// Returns the list as a client may see it: with hashes only if the client may change it.
    pub fn shown_to(&self, who: &[Identity]) -> Vec<Access> {
        let mut shown = self.0.to_vec();
        if self.check(Permissions::ADMIN.0, who).is_err() {
            for access in shown.iter_mut().filter(|access| access.scheme == "digest") {
                let user = access.id.split(':').next().unwrap_or_default();
                access.id = format!("{user}:x");
            }
        }
        shown
    }
}

fn is_digest(id: &str) -> bool {
    let parts = id.split_once(':');
    parts.is_some_and(|(_, hash)| !hash.is_empty() && !hash.contains(':'))
}

/// Returns the identities that `auth` stands for: neither an address nor the administrator.
fn authenticated(who: &[Identity]) -> Result<impl Iterator<Item = &Identity>, ErrorCode> {
    let is_of_digest = |own: &&Identity| own.scheme != "ip" && !own.is_administrator();
    let mut known = who.iter().filter(is_of_digest).peekable();
    known.peek().ok_or(ErrorCode::INVALID_ACL)?;
    Ok(known)
}

fn is_among(access: &Access, who: &[Identity]) -> bool {
    match access.scheme.as_str() {
        "world" => access.id == "anyone",
        "ip" => network(&access.id).is_some_and(|(net, bits)| {
            who.iter().any(|own| {
                own.scheme == "ip" && own.id.parse().is_ok_and(|own| is_within(own, net, bits))
            })
        }),
        scheme => who
            .iter()
            .any(|own| own.scheme == scheme && own.id == access.id),
    }
}

/// Parses `address` or `address/bits`.
fn network(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = text.split_once('/').unzip();
    let address: IpAddr = address.unwrap_or(text).parse().ok()?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(all), |bits| bits.parse().ok())?;
    (bits <= all).then_some((address, bits))
}

fn is_within(address: IpAddr, net: IpAddr, bits: u32) -> bool {
    let (difference, all) = match (address, net) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits() ^ b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits(), 128),
        _ => return false,
    };
    difference.checked_shr(all - bits).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use zklock_testkit::fuzz;

    const IDS: &[&str] = &[
        "anyone",
        "",
        "me:x",
        "super:lK75jTNcA+U9vtVEw5vB51mj/w4=",
        "10.1.2.3",
        "10.0.0.0/8",
        "10.0.0.0/33",
        "0.0.0.0/0",
        "::1/128",
        "2001:db8::/32",
    ];

    #[rustfmt::skip]
    const WORDS: &[&str] = &[
        ":", "/", ".", "-1", "0", "1", "32", "33", "128", "129", "4294967296", "256", "::", "ffff",
        "me", "\0", "é",
    ];

    fn scheme() -> impl Strategy<Value = String> {
        let known = select(vec!["world", "auth", "digest", "ip"]).prop_map(str::to_owned);
        prop_oneof![8 => known, 1 => any::<String>()]
    }

    fn list() -> impl Strategy<Value = Vec<Access>> {
        let access = (any::<i32>(), scheme(), fuzz::texts(IDS, WORDS));
        let access = access.prop_map(|(bits, scheme, id)| Access {
            permissions: Permissions(bits),
            scheme,
            id,
        });
        vec(access, 0..4)
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn a_list_with_mistakes_is_settled_for_good_or_refused(
            list in list(), credentials in fuzz::texts(&["me:x", "me:p:w", ""], WORDS),
            address in prop_oneof![Just(IpAddr::from([10, 1, 2, 3])), any::<IpAddr>()], wanted: i32,
        ) {
            let who = [
                Identity::of_address(address),
                Identity::of_credentials("digest", credentials.as_bytes()).unwrap(),
            ];
            match NodeAcl::settle(&list, &who) {
                Ok(settled) => {
                    // At most one entry for each entry that was asked for.
                    prop_assert!(settled.0.len() <= list.len());
                    prop_assert!(settled.0.iter().all(|access| access.scheme != "auth"));
                    let allowed = settled.check(wanted, &who);
                    prop_assert!(matches!(allowed, Ok(()) | Err(ErrorCode::NO_AUTH)));
                    settled.shown_to(&who);
                    settled.shown_to(&[]);
                }
                Err(code) => prop_assert_eq!(code, ErrorCode::INVALID_ACL),
            }
        }

        #[test]
        fn whoever_showed_any_credentials_is_let_in_by_them(credentials: Vec<u8>) {
            let me = [Identity::of_credentials("digest", &credentials).unwrap()];
            let asked = [access("auth", "")];
            let acl = NodeAcl::settle(&asked, &me).unwrap();
            prop_assert_eq!(acl.check(Permissions::READ.0, &me), Ok(()));
            prop_assert_eq!(acl.check(Permissions::READ.0, &[]), Err(ErrorCode::NO_AUTH));
            // A settled list, which names its identities, can be asked for again.
            let again = NodeAcl::settle(&acl.0, &[]);
            prop_assert_eq!(again, Ok(acl));
        }
    }

    fn access(scheme: &str, id: &str) -> Access {
        Access {
            permissions: Permissions::READ,
            scheme: scheme.to_owned(),
            id: id.to_owned(),
        }
    }

    #[test]
    fn a_digest_is_the_one_that_zookeepers_tools_print() {
        let identity = Identity::of_credentials("digest", b"super:secret").unwrap();
        assert_eq!(identity.id, "super:lK75jTNcA+U9vtVEw5vB51mj/w4=");
        assert_eq!(Identity::of_credentials("sasl", b""), None);
    }

    #[test]
    fn auth_stands_for_whoever_asks() {
        let me = Identity::of_credentials("digest", b"me:x").unwrap();
        let address = Identity::of_address([127, 0, 0, 1].into());
        let asked = [access("auth", ""), access("auth", "")];
        let settled = NodeAcl::settle(&asked, &[address.clone(), me.clone()]).unwrap();
        assert_eq!(*settled.0, [access("digest", &me.id)]);
        assert_eq!(
            NodeAcl::settle(&asked, &[address]),
            Err(ErrorCode::INVALID_ACL)
        );
    }

    #[test]
    fn a_list_that_nobody_can_read_is_refused() {
        for (scheme, id) in [
            ("world", "me"),
            ("digest", "me"),
            ("ip", "here"),
            ("no", ""),
        ] {
            let settled = NodeAcl::settle(&[access(scheme, id)], &[]);
            assert_eq!(settled, Err(ErrorCode::INVALID_ACL), "{scheme}:{id}");
        }
        assert_eq!(NodeAcl::settle(&[], &[]), Err(ErrorCode::INVALID_ACL));
    }

    #[test]
    fn a_list_lets_in_whom_it_names() {
        let me = [
            Identity::of_address([10, 1, 2, 3].into()),
            Identity::of_credentials("digest", b"me:x").unwrap(),
        ];
        let digest = me[1].id.clone();
        let table = [
            ("world", "anyone", true),
            ("ip", "10.1.2.3", true),
            ("ip", "10.1.0.0/16", true),
            ("ip", "10.2.0.0/16", false),
            ("ip", "0.0.0.0/0", true),
            ("digest", digest.as_str(), true),
            ("digest", "me:other", false),
        ];
        for (scheme, id, allowed) in table {
            let acl = NodeAcl(Arc::new([access(scheme, id)]));
            let read = acl.check(Permissions::READ.0, &me);
            assert_eq!(read.is_ok(), allowed, "{scheme}:{id}");
            assert_eq!(
                acl.check(Permissions::WRITE.0, &me),
                Err(ErrorCode::NO_AUTH)
            );
        }
    }
}
