//! Checks whether a token is the holder's.

use zklock::{Client, FencingToken};

use crate::args::Check;
use crate::failure::Failure;

/// The exit status if another client holds the token's lock, or no client does.
const OTHER: u8 = 1;

pub(crate) fn check(client: &Client, check: &Check) -> Result<u8, Failure> {
    let is_current = client.is_current(&check.path, FencingToken::from(check.token))?;
    Ok(if is_current { 0 } else { OTHER })
}
