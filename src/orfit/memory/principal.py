"""Keep the principal directions: incremental PCA."""

from orfit import small
from orfit.memory.basis import Bounded


class Principal(Bounded):
    """The top m principal directions of all past gradients: alg:orfit_ipca, alg:borfit_ipca.

    Sequential Karhunen–Loève: after each block the m directions along which most was seen stay.
    Of all summaries of that size, exact principal directions make the worst-case forgetting
    smallest (prop:pca_analysis); this recursion comes close to them, since what it drops once
    it cannot weigh again.

    By itself it is an incremental, uncentred PCA of any stream of columns::

        pca = orfit.memory.Principal(10)
        pca.absorb(columns)          # p×n, again and again
        pca.U, pca.sigma
    """

    def trim(self) -> None:
        excess = self.rank - self.m
        if excess == 1:
            self._reflect(small.least(self._root))
        elif excess > 1:
            # A = U rootᵀ(…), so its left singular vectors are the right ones of root.
            self._keep(small.principal(self._root)[1][:, : self.m])
