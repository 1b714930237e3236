"""f_θ: the networks of the paper by name, sized from the first batch; or any nn.Module of the user's.

And what the learners that grow are made of: auto-encoders, and columns that hand their features on.
"""

from everlearn.networks.backbones import (
    EMBEDDINGS,
    MLP,
    BasicBlock,
    SlimResNet18,
    SoftmaxNetwork,
    as_input,
    to_unit_length,
    truncate,
)
from everlearn.networks.catalogue import (
    CNN,
    ResNet18,
    check_name,
    embedding_network,
    is_built_in,
    is_own,
    trunk,
)

__all__ = [
    "CNN",
    "EMBEDDINGS",
    "MLP",
    "BasicBlock",
    "ResNet18",
    "SlimResNet18",
    "SoftmaxNetwork",
    "as_input",
    "check_name",
    "embedding_network",
    "is_built_in",
    "is_own",
    "to_unit_length",
    "truncate",
    "trunk",
]
