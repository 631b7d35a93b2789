"""`verify_as_go`: certificates are verified as kubectl and kube-scheduler verify them."""

from __future__ import annotations

import ssl


def verify_as_go(context: ssl.SSLContext) -> ssl.SSLContext:
    """Turn off the strict checks of RFC 5280 that `ssl.create_default_context` turns on in Python 3.13 and
    later; return the context.

    Go's TLS, and so kubectl and kube-scheduler, accept a CA without the extension Authority Key Identifier or
    with basic constraints that are not critical. The CAs of many clusters are so. Signatures, times, names
    and the chain are verified as before.
    Source: OpenSSL, X509_V_FLAG_X509_STRICT; Go, crypto/x509 Certificate.Verify.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
