"""The slides' hardware model as data: memories, execution units, transfer units and the buses between them."""

from tile_opt.hardware.jsonc import read_json as read_json
from tile_opt.hardware.model import Bus as Bus
from tile_opt.hardware.model import ExecUnit as ExecUnit
from tile_opt.hardware.model import HardwareModel as HardwareModel
from tile_opt.hardware.model import MemUnit as MemUnit
from tile_opt.hardware.model import Port as Port
from tile_opt.hardware.model import TxUnit as TxUnit
from tile_opt.hardware.model import hardware_model as hardware_model
