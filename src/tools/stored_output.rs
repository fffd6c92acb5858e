//! Lookup of earlier outputs and messages of a session, for `read_file output:…`.

use std::fmt;
use std::sync::Arc;

use posse_actors::ports::{CallContext, PortFuture};

/// Name of the conversation in `read_file output:history`, and beginning of the names of its pages.
pub const HISTORY: &str = "history";

/// Function that finds the output of a call, or a page of the caller's conversation, by the name
/// after `output:`. Returns `Ok(None)` if the name is unknown. An error is one line for the model.
pub type FindOutput =
    dyn Fn(CallContext, String) -> PortFuture<Result<Option<String>, String>> + Send + Sync;

/// Lookup of earlier outputs and messages of a session. If its field is `None`, only spilled
/// outputs can be read again.
#[derive(Clone, Default)]
pub struct Recall(Option<Arc<FindOutput>>);

impl Recall {
    /// Creates a lookup that calls `find`.
    pub fn new(
        find: impl Fn(CallContext, String) -> PortFuture<Result<Option<String>, String>>
        + Send
        + Sync
        + 'static,
    ) -> Recall {
        Recall(Some(Arc::new(find)))
    }

    pub(crate) async fn find(
        &self,
        context: CallContext,
        name: &str,
    ) -> Result<Option<String>, String> {
        match &self.0 {
            Some(find) => find(context, name.to_owned()).await,
            None => Ok(None),
        }
    }
}

impl fmt::Debug for Recall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Recall").field(&self.0.is_some()).finish()
    }
}
