//! Checks whether a token is the holder's.

use std::time::Duration;

use zklock::FencingToken;

use crate::args::{Args, Check};
use crate::connect::connect;
use crate::failure::Failure;

/// The exit status if another client holds the token's lock, or no client does.
const OTHER: u8 = 1;

pub(crate) fn check(args: &Args, check: &Check) -> Result<u8, Failure> {
    let client = connect(args, None, Duration::MAX)?;
    let is_current = client.is_current(&check.path, FencingToken::from(check.token))?;
    drop(client.close());
    Ok(if is_current { 0 } else { OTHER })
}
